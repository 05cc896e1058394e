"""Rows gathered by what they have in common: how many there are, and the means of their figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from etude.evaluate.report.query.filter import Row

COUNT = "rows"


def group_rows(rows: Iterable[Row], by: Sequence[str], columns: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each combination of `by`, in order of first sight: its fields, `rows`, and of each column the mean of the numbers in it.

    True counts as 1; a column without a number in a group is None there. What is held grows with the groups, not with the rows.
    """
    found: dict[tuple[str, ...], tuple[Row, list[int], list[list[float]]]] = {}
    for row in rows:
        key = tuple(repr(row.get(name)) for name in by)
        _, count, sums = found.setdefault(key, (row, [0], [[0.0, 0.0] for _ in columns]))
        count[0] += 1
        for entry, name in zip(sums, columns, strict=True):
            value = row.get(name)
            if isinstance(value, int | float):
                entry[0] += value
                entry[1] += 1
    return [
        {name: first.get(name) for name in by}
        | {COUNT: count[0]}
        | {name: total / known if known else None for name, (total, known) in zip(columns, sums, strict=True)}
        for first, count, sums in found.values()
    ]
