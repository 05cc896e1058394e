"""Which attempts a stand-alone page holds in full: flagged ones first, then some of every kind, spread evenly. Pure.

A kind is who answered and whether it was solved, sessions that were kept before those of which there are only tokens. Kinds take turns,
and within one the order is that of van der Corput: wherever it ends, what was taken is spread over the whole run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from etude.evaluate.report.board.columns import Columns
from etude.evaluate.report.board.sources.rl import SOURCE as RL


def choose_attempts(columns: Columns, flagged: Sequence[int] = ()) -> Iterator[int]:
    """Rows of which there is more than figures, in the order in which they should be taken; each once."""
    flagged_rows = set(flagged)
    yield from dict.fromkeys(flagged)
    for kinds in _kinds(columns):
        waiting = [[rows[place] for place in spread(len(rows))] for rows in kinds]
        for turn in range(max(map(len, waiting), default=0)):
            yield from (rows[turn] for rows in waiting if turn < len(rows) and rows[turn] not in flagged_rows)


def spread(count: int) -> list[int]:
    """0 to count - 1, bits reversed: any beginning of it is spread evenly."""
    bits = max(1, (count - 1).bit_length())
    order = (int(f"{n:0{bits}b}"[::-1], 2) for n in range(2**bits))
    return [place for place in order if place < count]


def _kinds(columns: Columns) -> tuple[list[list[int]], list[list[int]]]:
    """Rows by kind: of kept sessions, and of RL's rollouts without one. Of others without a session nothing more is known."""
    source, policy, outcome = (columns.column(name).tolist() for name in ("source", "policy", "outcome"))
    file, names = columns.column("file").tolist(), columns.words("source")
    kept: dict[tuple[int, int, bool], list[int]] = {}
    tokens: dict[tuple[int, int, bool], list[int]] = {}
    words = columns.words("file")
    for row in range(len(columns)):
        kind = source[row], policy[row], outcome[row] >= 1
        if words[file[row]]:
            kept.setdefault(kind, []).append(row)
        elif names[source[row]] == RL:
            tokens.setdefault(kind, []).append(row)
    return list(kept.values()), list(tokens.values())
