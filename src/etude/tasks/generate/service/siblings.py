"""Harder siblings of a task: the same project or level, more to do."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from etude.tasks.row import Row

# Exercises: two bugs at once are one bug combined, in the same file by the same mutations.
LADDER: dict[str, tuple[str, ...]] = {"one-bug": ("two-bugs",), "from-tests": ("two-bugs",)}


class Siblings(Protocol):
    """`template`: what tasks of a kind are made from. `harder`: those `depth` steps harder, best first; pure, and empty where there are
    none. The same id is never served twice, so an answer may name ids that are in use."""

    def template(self, task_id: str) -> str: ...
    def harder(self, task_id: str, depth: int) -> Sequence[str]: ...


class ExerciseSiblings:
    """Of generated exercises: the level above, by the same number, so that no two tasks share a sibling."""

    def template(self, task_id: str) -> str:
        return task_id.partition("/")[0]

    def harder(self, task_id: str, depth: int) -> Sequence[str]:
        level, _, rest = task_id.partition("/")
        steps = LADDER.get(level, ())
        return [f"{steps[min(depth, len(steps)) - 1]}/{rest}"] if steps and depth > 0 else []


@dataclass(frozen=True)
class Sized:
    """A task of a folder. `size`: how much its reference changes, or a measured difficulty; greater is harder."""

    id: str
    project: str
    generator: str
    category: str
    size: float


def sized(row: Row) -> Sized:
    return Sized(row.id, row.project, row.generator, row.category, float(row.lines))


class FolderSiblings:
    """Of a folder of tasks: same project and category, by size. Depth d asks for what is harder than d steps of `FACTOR` above the task:
    combined bugs beside single ones, a whole feature beside a function."""

    FACTOR = 1.5

    def __init__(self, rows: Iterable[Sized]) -> None:
        self._rows: dict[str, Sized] = {}
        self._of: dict[tuple[str, str], list[Sized]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: Sized) -> None:
        """One more, made meanwhile."""
        self._rows[row.id] = row
        insort(self._of.setdefault((row.project, row.category), []), row, key=lambda one: (one.size, one.id))

    def template(self, task_id: str) -> str:
        row = self._rows[task_id]
        return f"{row.project}/{row.generator}"

    def least(self, task_id: str, depth: int) -> float:
        """The size from which on a task counts as so many steps harder."""
        return max(self._rows[task_id].size, 1.0) * self.FACTOR**depth

    def harder(self, task_id: str, depth: int) -> Sequence[str]:
        row, least = self._rows[task_id], self.least(task_id, depth)
        return [
            other.id for other in self._of[row.project, row.category] if other.size >= least and other.id != task_id
        ]
