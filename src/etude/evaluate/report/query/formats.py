"""Rows as text: a table for people, JSON lines and CSV for scripts. Each gives a line at a time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from etude.core.events.finite import without_nan

MEASURED = 200  # rows that the columns' widths are taken from, so that a table of any length begins at once
WIDEST = 60  # characters of a cell in a table, its last column excepted; CSV and JSON cut nothing

Rows = Iterable[dict[str, Any]]


def table(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """Aligned columns; a cell that is wider than those measured pushes its line to the right."""
    rows = iter(rows)
    first = list(islice(rows, MEASURED))
    numeric = [all(isinstance(r[c], int | float | None) for r in first) for c in columns]
    short_cells = lambda row: [*(_short(_cell(row[c])) for c in columns[:-1]), *(_cell(row[c]) for c in columns[-1:])]
    lines = [list(columns), *map(short_cells, first)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    line = lambda cells: "  ".join(
        cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(cells, widths, numeric, strict=True)
    ).rstrip()
    for cells in chain(lines, map(short_cells, rows)):
        yield line(cells)


def json_lines(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """One object a line; a field that the row lacks is null."""
    for row in rows:
        yield json.dumps(without_nan({name: row[name] for name in columns}), allow_nan=False)


def comma_separated(columns: Sequence[str], rows: Rows) -> Iterator[str]:
    """RFC 4180 with a head; lists and objects are JSON in their cell, null is empty."""
    yield _csv(columns)
    for row in rows:
        yield _csv(
            [json.dumps(v) if isinstance(v, list | dict | bool) else "" if v is None else v for v in row.values()]
        )


def _csv(cells: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and abs(value) >= 10_000:  # times and counts in full
        return f"{value:.0f}"
    text = f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def _short(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
