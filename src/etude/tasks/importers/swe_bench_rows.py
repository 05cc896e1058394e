"""Rows of the SWE-bench family as a file has them: read one by one, and those that can't be used left out by number, with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError
from etude.tasks.importers.swe_forms import canonical
from etude.tasks.importers.swe_grading import EVAL_TYPES, FAIL_ONLY_REPOS, EvalType, Expected
from etude.tasks.place import folder_of

# Files of rows, read one row at a time: JSON lines, a JSON array, Parquet where pyarrow is installed.


BATCH_ROWS = 64
_HEAD_BYTES = 4096


def numbered_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Each row's number and its value, or the ValueError of its line. Raises TaskError for what is no such file."""
    if not path.is_file():
        raise TaskError(f"{path}: there is no such file of rows")
    if path.suffix == ".parquet":
        yield from enumerate(_parquet(path), 1)
        return
    try:
        with path.open("rb") as file:
            array = file.read(_HEAD_BYTES).lstrip().startswith(b"[") and path.suffix != ".jsonl"
        if array:
            yield from enumerate(_array(path), 1)
            return
        # Ends of lines are \n alone: JSON text may hold U+2028 and others that some take for ends of lines.
        with path.open(encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate((line for line in lines if line.strip()), 1):
                try:
                    yield number, json.loads(line)
                except (ValueError, RecursionError) as error:
                    yield number, error
    except UnicodeDecodeError as error:
        raise TaskError(f"{path} is no UTF-8 text: rows come as JSON lines, a JSON array or Parquet") from error


def _array(path: Path) -> list[Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise TaskError(f"{path} is no JSON array: {error}") from error


def _parquet(path: Path) -> Iterator[Any]:
    try:
        from pyarrow import ArrowException, parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise TaskError(
            f"{path} is Parquet, and pyarrow, which reads it, is not installed: `pip install pyarrow`, or write the rows as JSON "
            "lines first (`DataFrame.to_json(orient='records', lines=True)`)"
        ) from None
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS):
            yield from batch.to_pylist()
    except (ArrowException, OSError, ValueError) as error:
        raise TaskError(f"{path} is no Parquet file that can be read: {error}") from error


TEXTS = ("instance_id", "repo", "base_commit", "patch", "test_patch", "problem_statement")
NAMES = ("FAIL_TO_PASS", "PASS_TO_PASS")
# A row is somebody else's text and names a clone and a commit: nothing in it may pass for a path outside or an option of git.
_REPO = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")


@dataclass(frozen=True)
class SweBenchRow:
    """One instance; names of tests as the row has them."""

    instance_id: str
    repo: str
    base_commit: str
    patch: str
    test_patch: str
    problem_statement: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    form: str = "swe-bench"  # which of the family's spellings (`swe_forms.py`)
    reversed: bool = False  # `patch` makes the bug, and taking it back is the reference
    image: str = ""  # of a registry: the environment the row was proved in
    log_parser: str = ""
    eval_script: str = ""
    eval_type: EvalType = "pass_and_fail"
    version: str = ""
    created_at: str = ""
    hints_text: str = ""
    environment_setup_commit: str = ""
    expected_output: Mapping[str, str] = field(default_factory=dict)  # R2E-Gym: each test's word
    install_config: Mapping[str, Any] = field(default_factory=dict)  # SWE-rebench: install, test_cmd, log_parser …
    rest: Mapping[str, Any] = field(default_factory=dict)  # further keys, as they stand

    @property
    def expected(self) -> Expected:
        """What a log of its `eval_script` is judged by."""
        lists = self.fail_to_pass, self.pass_to_pass
        return Expected(self.instance_id, self.log_parser, *lists, self.eval_type, self.version)


class RowError(ValueError):
    """A row that can't be used; says which field and why."""


def read_rows(path: Path) -> tuple[list[SweBenchRow], dict[str, str]]:
    """The rows of a file, and why others are left out, by number. Raises TaskError for what is no such file."""
    rows: dict[str, SweBenchRow] = {}
    numbers: dict[str, int] = {}
    left_out: dict[str, str] = {}
    for number, row in rows_of(path):
        try:
            if isinstance(row, RowError):
                raise row
            if row.instance_id in rows:
                raise RowError(f"{row.instance_id} is already in row {numbers[row.instance_id]}")
        except RowError as error:
            left_out[f"row {number}"] = str(error)
            continue
        rows[row.instance_id], numbers[row.instance_id] = row, number
    if not rows:
        first = next((f"; {name}: {reason}" for name, reason in left_out.items()), "")
        raise TaskError(f"{path} holds no row that can be used, {len(left_out)} that can't{first}")
    return list(rows.values()), left_out


def rows_of(path: Path) -> Iterator[tuple[int, SweBenchRow | RowError]]:
    """Lazily, each by its number. Raises TaskError for what is no such file."""
    for number, row in numbered_rows(path):
        try:
            yield number, _row(row)
        except RowError as error:
            yield number, error


def _row(value: Any) -> SweBenchRow:
    if isinstance(value, Exception):
        raise RowError(f"its line is no JSON: {value}")
    if not isinstance(value, Mapping):
        raise RowError(f"it is no object but {type(value).__name__}")
    row = canonical(value)
    for key in TEXTS:
        if not isinstance(row.get(key), str):
            raise RowError(f"{key} must be a text, not {_short(row.get(key))}; a row has {', '.join(TEXTS + NAMES)}")
        if any("\ud800" <= char <= "\udfff" for char in row[key]):
            raise RowError(f"{key} holds half of a surrogate pair, which is no text")
    try:
        folder_of(Path(), row["instance_id"])
    except TaskError as error:
        raise RowError(f"instance_id: {error}") from error
    for key, pattern, wanted in (("repo", _REPO, "owner/name"), ("base_commit", _COMMIT, "a commit's hexadecimal id")):
        if not pattern.fullmatch(row[key]):
            raise RowError(f"{key} must be {wanted}, not {_short(row[key])}")
    for key in ("patch", "problem_statement") if row["form"] != "r2e-gym" else ("problem_statement",):
        if not row[key].strip():
            raise RowError(f"{key} is empty")
    return SweBenchRow(
        *(row[key] for key in TEXTS), *(_names(row.get(key), key) for key in NAMES), **_other_fields(row)
    )


def _other_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """What not every row has."""
    install = _table(row.get("install_config"), "install_config")
    texts = {key: _text(row, key) for key in ("image", "log_parser", "eval_script", "version", "created_at")}
    texts["log_parser"] = texts["log_parser"] or str(install.get("log_parser") or "")
    fail_only = "fail_only" if row["repo"] in FAIL_ONLY_REPOS else "pass_and_fail"
    eval_type = _text(row, "eval_type") or fail_only
    if eval_type not in EVAL_TYPES:
        raise RowError(f"eval_type must be one of {', '.join(EVAL_TYPES)}, not {_short(eval_type)}")
    words = _table(row.get("expected_output_json"), "expected_output_json")
    known = {*TEXTS, *NAMES, *SweBenchRow.__dataclass_fields__, "image_name", "docker_image", "expected_output_json"}
    return {
        **texts,
        **{key: _text(row, key) for key in ("hints_text", "environment_setup_commit")},
        "form": row["form"],
        "reversed": bool(row.get("reversed")),
        "eval_type": eval_type,
        "expected_output": {name: str(word) for name, word in words.items()},
        "install_config": install,
        "rest": {key: value for key, value in row.items() if key not in known},
    }


def _text(row: Mapping[str, Any], key: str) -> str:
    """Empty where it lacks; numbers and dates as their text."""
    value = row.get(key)
    if isinstance(value, Mapping | list | bool):
        raise RowError(f"{key} must be a text, not {_short(value)}")
    return "" if value is None else str(value)


def _table(value: Any, key: str) -> dict[str, Any]:
    """An object, or one written as JSON text."""
    try:
        found = json.loads(value) if isinstance(value, str) and value.strip() else value or {}
    except (ValueError, RecursionError) as error:
        raise RowError(f"{key} is no JSON: {_short(value)}") from error
    if not isinstance(found, Mapping):
        raise RowError(f"{key} must be an object, not {_short(value)}")
    return dict(found)


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
