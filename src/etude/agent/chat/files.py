"""Reads the small files of a checkpoint that somebody else made: never more than a bound, and with an error that names the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
