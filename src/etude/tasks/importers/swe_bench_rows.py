"""Rows of SWE-bench as a file has them: read one by one, and those that can't be used left out by number, with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError
from etude.tasks.place import folder_of

TEXTS = ("instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement")
NAMES = ("FAIL_TO_PASS", "PASS_TO_PASS")
# A row is somebody else's text and names a clone and a commit: nothing in it may pass for a path outside or an option of git.
_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class Row:
    """One instance; names of tests as the row has them."""

    instance_id: str
    repo: str
    base_commit: str
    patch: str
    test_patch: str
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


class RowError(ValueError):
    """A row that can't be used; says which field and why."""


def read_rows(path: Path) -> tuple[list[Row], dict[str, str]]:
    """The rows of JSON lines or of a JSON array, and why others are left out, by number. Raises TaskError for what is no such file."""
    rows: dict[str, Row] = {}
    numbers: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for number, told in _told(path):
        try:
            row = _row(told)
            if row.instance_id in rows:
                raise RowError(f"{row.instance_id} stands in row {numbers[row.instance_id]} already")
        except RowError as error:
            left_out[f"row {number}"] = str(error)
            continue
        rows[row.instance_id], numbers[row.instance_id] = row, number
    if not rows:
        first = next((f"; {name}: {reason}" for name, reason in left_out.items()), "")
        raise TaskError(f"{path} holds no row that can be used, {len(left_out)} that can't{first}")
    return list(rows.values()), left_out


def _told(path: Path) -> Iterator[tuple[int, Any]]:
    """Each row's number and its value, or the ValueError of its line."""
    if path.suffix == ".parquet":
        raise TaskError(
            f"{path} is Parquet: write it as JSON lines first (`DataFrame.to_json(orient='records', lines=True)`)"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is no UTF-8 text: rows come as JSON lines") from error
    if text.lstrip().startswith("["):
        try:
            yield from enumerate(json.loads(text), 1)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"{path} is no JSON array: {error}") from error
        return
    # Not splitlines: JSON text may hold U+2028 and others that it takes for ends of lines.
    for number, line in enumerate((line for line in text.split("\n") if line.strip()), 1):
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, error


def _row(told: Any) -> Row:
    if isinstance(told, Exception):
        raise RowError(f"its line is no JSON: {told}")
    if not isinstance(told, Mapping):
        raise RowError(f"it is no object but {type(told).__name__}")
    for key in TEXTS:
        if not isinstance(told.get(key), str):
            raise RowError(f"{key} must be a text, not {_short(told.get(key))}; a row has {', '.join(TEXTS + NAMES)}")
        if any("\ud800" <= char <= "\udfff" for char in told[key]):
            raise RowError(f"{key} holds half of a surrogate pair, which is no text")
    try:
        folder_of(Path(), told["instance_id"])
    except TaskError as error:
        raise RowError(f"instance_id: {error}") from error
    for key, pattern, wanted in (("repo", _REPO, "owner/name"), ("base_commit", _COMMIT, "a commit's hexadecimal id")):
        if not pattern.fullmatch(told[key]):
            raise RowError(f"{key} must be {wanted}, not {_short(told[key])}")
    for key in ("patch", "problem_statement"):
        if not told[key].strip():
            raise RowError(f"{key} is empty")
    return Row(*(told[key] for key in TEXTS), *(_names(told.get(key), key) for key in NAMES))


def _names(value: Any, key: str) -> tuple[str, ...]:
    """A list, or one written as JSON text, as the published sets have it."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError) as error:
        raise RowError(f"{key} is no JSON: {_short(value)}") from error
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise RowError(f"{key} must be a list of test names, not {_short(value)}")
    return tuple(found)


def _short(value: Any) -> str:
    return repr(value)[:60]
