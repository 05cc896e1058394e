"""Reads the small files of a checkpoint that somebody else made: never more than a bound, and with an error that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

MAX_TEMPLATE_BYTES = 4 << 20  # the largest of published models have 20 KB
MAX_JSON_BYTES = 16 << 20  # with every added token in tokenizer_config.json the largest of published models have 1 MB


def read_bounded(file: Path, most: int) -> str:
    """The text of a file that somebody else made. Raises ValueError for one of more than `most` bytes, or of no UTF-8."""
    with open(file, "rb") as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{file} has more than {most >> 20} MiB; take the file from where it was published")
    return data.decode("utf-8")


def read_json(file: Path) -> dict[str, Any]:
    """A checkpoint's file of JSON, or nothing where there is none; raises ValueError if it is no JSON object."""
    if not file.is_file():
        return {}
    try:
        found = json.loads(read_bounded(file, MAX_JSON_BYTES))
    except RecursionError as error:
        raise ValueError(f"{file} is nested too deeply; take the file from where it was published") from error
    except ValueError as error:
        raise ValueError(f"{file} is no JSON ({error}); save the checkpoint again") from error
    if not isinstance(found, dict):
        raise ValueError(f"{file} holds no JSON object; save the checkpoint again")
    return found


def read_template(folder: Path) -> str | None:
    """The chat template: chat_template.jinja, or the one in tokenizer_config.json (of several, the one for tools).
    Raises ValueError for a damaged file."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return read_bounded(file, MAX_TEMPLATE_BYTES)
    template = read_json(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(template, list):
        rows = [row for row in template if isinstance(row, dict) and isinstance(row.get("name"), str)]
        named = {row["name"]: row.get("template") for row in rows}
        template = named.get("tool_use") or named.get("default")
    if template is not None and not isinstance(template, str):
        raise ValueError(
            f"{folder / 'tokenizer_config.json'}: its chat_template is a {type(template).__name__}, not a text"
        )
    return template
