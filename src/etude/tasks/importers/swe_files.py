"""Files of rows, read one row at a time: JSON lines, a JSON array, Parquet where pyarrow is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etude.tasks.errors import TaskError

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
