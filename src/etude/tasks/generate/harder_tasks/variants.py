"""Harder variants of a task: the same project or level with more to do."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from etude.tasks.task_row import TaskRow

# The two bugs of a "two-bugs" exercise are in one file and come from the mutations of "one-bug".
LADDER: dict[str, tuple[str, ...]] = {"one-bug": ("two-bugs",), "from-tests": ("two-bugs",)}


class HarderVariants(Protocol):
    """Finds harder variants. `template` names the kind that a task is made from.

    `harder` lists the variants that are `depth` steps harder, best first. It is pure, and empty where there are none.
    An answer may contain ids that are in use, because the caller never serves an id twice.
    """

    def template(self, task_id: str) -> str: ...
    def harder(self, task_id: str, depth: int) -> Sequence[str]: ...


class ExerciseVariants:
    """Variants of generated exercises: the level above with the same number, so that no two tasks share a variant."""

    def template(self, task_id: str) -> str:
        return task_id.partition("/")[0]

    def harder(self, task_id: str, depth: int) -> Sequence[str]:
        level, _, rest = task_id.partition("/")
        steps = LADDER.get(level, ())
        return [f"{steps[min(depth, len(steps)) - 1]}/{rest}"] if steps and depth > 0 else []


@dataclass(frozen=True)
class SizedTask:
    """A task of a folder. `size`: how much its reference changes, or a measured difficulty; greater is harder."""

    id: str
    project: str
    generator: str
    category: str
    size: float


def sized_task(row: TaskRow) -> SizedTask:
    return SizedTask(row.id, row.project, row.generator, row.category, float(row.lines))


class FolderVariants:
    """Variants in a folder of tasks: same project and category, by size.

    Depth d means at least `FACTOR` ** d times the size of the task: combined bugs after single ones, a whole feature
    after a function.
    """

    FACTOR = 1.5

    def __init__(self, rows: Iterable[SizedTask]) -> None:
        self._rows: dict[str, SizedTask] = {}
        self._of: dict[tuple[str, str], list[SizedTask]] = {}
        for row in rows:
            self.add(row)

    def add(self, row: SizedTask) -> None:
        """Adds a task that was generated during the run."""
        self._rows[row.id] = row
        insort(self._of.setdefault((row.project, row.category), []), row, key=lambda task: (task.size, task.id))

    def template(self, task_id: str) -> str:
        row = self._rows[task_id]
        return f"{row.project}/{row.generator}"

    def min_size(self, task_id: str, depth: int) -> float:
        """The size from which a task counts as `depth` steps harder."""
        return max(self._rows[task_id].size, 1.0) * self.FACTOR**depth

    def harder(self, task_id: str, depth: int) -> Sequence[str]:
        row, min_size = self._rows[task_id], self.min_size(task_id, depth)
        return [
            other.id for other in self._of[row.project, row.category] if other.size >= min_size and other.id != task_id
        ]
