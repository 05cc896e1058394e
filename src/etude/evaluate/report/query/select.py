"""What of the rows is wanted: a filter, columns (also by `*`), an order, a number. One row at a time wherever that is possible."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cmp_to_key
from itertools import islice
from typing import Any

from etude.core.spelling import similar
from etude.evaluate.report.query.filter import Row, RowFilter

MOST_NEAR = 4  # names offered for a wrong one
MOST_NAMED = 30  # fields named at once


class UnknownField(ValueError):
    """No row has a field of that name; names those that come near."""


@dataclass(frozen=True)
class RowQuery:
    """`columns` empty: all fields. `sort` holds field names, `-` before one turns its order. `limit` None: every row."""

    columns: Sequence[str] = ()
    where: RowFilter | None = None
    sort: Sequence[str] = ()
    limit: int | None = None

    @property
    def fields(self) -> list[str]:
        """Names and patterns that some row must have, in order."""
        sorting = [name.removeprefix("-") for name in self.sort]
        return list(dict.fromkeys([*self.columns, *sorting, *sorted(self.where.fields if self.where else ())]))


def select(read: Callable[[], Iterable[Row]], wanted: RowQuery) -> tuple[list[str], Iterator[dict[str, Any]]]:
    """The columns, and the rows that are wanted. `read` starts the rows again at each call.

    Nothing is held but what `sort` has to: with a limit that many rows, without one all that the filter lets through. Raises
    UnknownField before the first row: the rows are read until each name was met, which the first few do as a rule.
    """
    columns = _columns(read, wanted)
    rows = (row for row in read() if wanted.where is None or wanted.where(row))
    if wanted.sort:
        needed = list(dict.fromkeys([*columns, *(name.removeprefix("-") for name in wanted.sort)]))
        rows = ({name: row.get(name) for name in needed} for row in rows)
        key = _order(wanted.sort)
        rows = iter(sorted(rows, key=key) if wanted.limit is None else heapq.nsmallest(wanted.limit, rows, key=key))
    return columns, ({name: row.get(name) for name in columns} for row in islice(rows, wanted.limit))


def fields_of(rows: Iterable[Row]) -> dict[str, int]:
    """Every field with the number of rows that have it, in the order of first sight."""
    found: dict[str, int] = {}
    for row in rows:
        for name in row:
            found[name] = found.get(name, 0) + 1
    return found


def _columns(read: Callable[[], Iterable[Row]], wanted: RowQuery) -> list[str]:
    """The columns by name. Without patterns the rows are read only until each name was met."""
    named = [name for name in wanted.fields if "*" not in name]
    patterns = [name for name in wanted.columns if "*" in name]
    missing, seen = dict.fromkeys(wanted.fields), dict[str, None]()
    for row in read():
        seen |= dict.fromkeys(row)
        for name in list(missing):
            if name in row or ("*" in name and any(fnmatchcase(field, name) for field in row)):
                del missing[name]
        if not missing and not patterns and wanted.columns:
            break
    if missing and seen:  # of no rows at all nothing is known
        raise _unknown(next(iter(missing)), list(seen))
    if not wanted.columns:
        return list(seen)
    found: dict[str, None] = {}
    for column in wanted.columns:
        found |= dict.fromkeys([column] if column in named else [f for f in seen if fnmatchcase(f, column)])
    return list(found)


# What the board's filter calls a field, and rows of runs and benchmarks call otherwise.
_BOARD_NAMES = {
    "adv": ("advantage",), "category": ("level",), "end": ("info.end", "reason"), "outcome": ("score",), "task": ("task_id",),
    "tokens": ("sampled_tokens",), "turns": ("counters.turns",),
}  # fmt: skip


def _unknown(name: str, fields: list[str]) -> UnknownField:
    same = next((field for field in _BOARD_NAMES.get(name, ()) if field in fields), "")
    if same:
        return UnknownField(f"no row has the field {name!r}; what the board's filter calls {name} is {same} here")
    near = similar(name, fields, MOST_NEAR)
    near += [field for field in fields if name in field.split(".") and field not in near][: MOST_NEAR - len(near)]
    if near:
        return UnknownField(f"no row has the field {name!r}; did you mean {', '.join(near)}?")
    more = f" and {len(fields) - MOST_NAMED} more" if len(fields) > MOST_NAMED else ""
    return UnknownField(f"no row has the field {name!r}; there are {', '.join(fields[:MOST_NAMED])}{more}")


def _order(names: Sequence[str]) -> Callable[[Row], Any]:
    """Rows by these fields; what is missing comes last either way, numbers before texts."""

    def compare(one: Row, other: Row) -> int:
        for name in names:
            field, turned = name.removeprefix("-"), name.startswith("-")
            a, b = _rank(one.get(field)), _rank(other.get(field))
            if a == b:
                continue
            if a[0] != b[0]:
                return -1 if a[0] < b[0] else 1
            return -1 if (a < b) != turned else 1
        return 0

    return cmp_to_key(compare)


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return (2, 0)
    return (0, value) if isinstance(value, int | float) else (1, str(value))
