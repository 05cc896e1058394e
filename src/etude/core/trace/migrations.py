"""Older session formats brought up to the present one, a row at a time and a version at a time.

1 -> 2: the header tells what the harness hash is of (`harness_facts`; of a version 1 session only its settings are known)
and the effort that was asked for (there was none to choose, so the middle one). Entries of version 1 are entries of
version 2; the types `effort`, `approval`, `edit`, `undo`, `link` and `foreign`, and `delivery` of a message, are new.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from etude.core.trace.entry import FORMAT_VERSION

Row = dict[str, Any]


class SessionError(ValueError):
    """The file is no session, is broken inside, or comes from a newer version."""


def _to_2(row: Row) -> Row:
    if row["type"] != "session":
        return row
    return {**row, "harness_facts": {"settings": row.get("settings", {})}, "effort": "medium"}


# Version n -> a function that turns one row of version n into one of version n + 1.
MIGRATIONS: Mapping[int, Callable[[Row], Row]] = {1: _to_2}


def steps_from(
    version: object, migrations: Mapping[int, Callable[[Row], Row]] = MIGRATIONS, target: int = FORMAT_VERSION
) -> list[Callable[[Row], Row]]:
    """The migrations that lead from a header's version to the target, in order. Raises SessionError without a way."""
    if not isinstance(version, int) or isinstance(version, bool) or version > target:
        raise SessionError(f"session format {version!r}; this program reads up to {target}: use a newer one")
    missing = [step for step in range(version, target) if step not in migrations]
    if missing:
        raise SessionError(f"session format {version} can no longer be read: no migration from {missing[0]}")
    return [migrations[step] for step in range(version, target)]


def migrate(rows: list[Row], migrations: Mapping[int, Callable[[Row], Row]], target: int) -> list[Row]:
    """Rows brought to version `target`; the header row carries the version."""
    for step in steps_from(rows[0].get("version"), migrations, target):
        version = rows[0]["version"]
        rows = [step(row) for row in rows]
        rows[0]["version"] = version + 1
    return rows
