"""Sessions of one task in both runs: which two are set side by side, and what comes of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from etude.core.trace.tail import SessionTail
from etude.evaluate.report.compare.align import AlignedRow, align, parts_at, steps_of
from etude.evaluate.report.compare.patch import final_patch
from etude.evaluate.report.query.tables import sessions

SessionRow = Mapping[str, Any]
MOST_OPTIONS = 24  # sessions of one task that a pair is chosen from, on each side
PatchLine = tuple[str, str]  # "a", "b" or "both", and the line


@dataclass(frozen=True)
class Pair:
    """The same task, attempted in A and in B: rows as `query.sessions` has them."""

    task_id: str
    a: SessionRow
    b: SessionRow

    @property
    def apart(self) -> float:
        """How far the results lie apart: what a reader wants to see first."""
        return abs(float(self.a.get("score") or 0.0) - float(self.b.get("score") or 0.0))


@dataclass(frozen=True)
class SessionPair:
    """A pair read in full."""

    pair: Pair
    rows: list[AlignedRow]
    patch: list[PatchLine]

    @property
    def parts_at(self) -> int | None:
        return parts_at(self.rows)

    def to_json(self) -> dict[str, Any]:
        kinds = [row.kind for row in self.rows]
        return {
            "task_id": self.pair.task_id,
            **{f"{side}_{key}": row.get(key) for side, row in (("a", self.pair.a), ("b", self.pair.b)) for key in ("file", "score", "turns", "end")},
            "steps": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
            "parts_at_step": None if self.parts_at is None else self.parts_at + 1,
            "patch_equal": all(side == "both" for side, _ in self.patch),
        }  # fmt: skip


def pairs(a: Path, b: Path) -> list[Pair]:
    """One pair for each task that both runs kept sessions of, the furthest apart first. Demonstrations are left out."""
    ours, theirs = _by_task(a), _by_task(b)
    found = [_closest(task, ours[task], theirs[task]) for task in ours if task in theirs]
    return sorted(found, key=lambda pair: (-pair.apart, pair.task_id))


def read(a: Path, b: Path, pair: Pair) -> SessionPair:
    """Both sessions aligned, both patches against each other."""
    one, other = a / pair.a["file"], b / pair.b["file"]
    ours, theirs = SessionTail(one).read(), SessionTail(other).read()
    rows = align(steps_of(ours), steps_of(theirs))
    return SessionPair(pair, rows, list(against(final_patch(one, ours), final_patch(other, theirs))))


def against(a: list[str], b: list[str]) -> Iterator[PatchLine]:
    """The lines of two patches, each with the side it is of."""
    for tag, a0, a1, b0, b1 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from (("both", line) for line in a[a0:a1])
            continue
        yield from (("a", line) for line in a[a0:a1])
        yield from (("b", line) for line in b[b0:b1])


def _by_task(run: Path) -> dict[str, list[SessionRow]]:
    found: dict[str, list[SessionRow]] = {}
    for row in sessions(run):
        if row["task_id"] and row.get("recipe.stage") != "sessions":
            found.setdefault(row["task_id"], []).append(row)
    return found


def _closest(task: str, ours: list[SessionRow], theirs: list[SessionRow]) -> Pair:
    """Same stage, policy and place in its group before all; then results that differ."""
    same = ("recipe.stage", "policy", "recipe.policy", "effort", "recipe.member", "recipe.pass")
    options = [Pair(task, a, b) for a in ours[:MOST_OPTIONS] for b in theirs[:MOST_OPTIONS]]
    likeness = lambda pair: sum(pair.a.get(key) == pair.b.get(key) for key in same[:4])
    place = lambda pair: sum(pair.a.get(key) == pair.b.get(key) for key in same[4:])
    return max(options, key=lambda pair: (likeness(pair), pair.apart, place(pair)))
