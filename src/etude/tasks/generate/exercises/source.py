"""The exercises as a TaskSource: ids are cheap, a task is made when asked for, and the same id gives the same task."""

from __future__ import annotations

import bisect
import itertools
import random
from typing import Sequence, overload

from etude.tasks.generate.exercises import (
    docstring,
    feature,
    from_tests,
    one_bug,
    relapse,
    rename,
    two_bugs,
    write_test,
)
from etude.tasks.generate.exercises.drawing import Drawing
from etude.tasks.generate.exercises.level import Level
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.task import SPLITS, Split, Task

# All levels by name, in the order of the report.


LEVELS: dict[str, Level] = {
    module.LEVEL.name: module.LEVEL
    for module in (one_bug, from_tests, two_bugs, rename, feature, docstring, write_test, relapse)
}


class TaskIds(Sequence[str]):
    """`count` ids, made on access. With several levels, number i's level is drawn by weight from the seed and i."""

    def __init__(self, split: Split, count: int, levels: dict[str, float], seed: int) -> None:
        self._split, self._count, self._seed = split, count, seed
        self._names = [name for name, weight in levels.items() if weight > 0]
        self._bounds = list(itertools.accumulate(levels[name] for name in self._names))
        if not self._names:
            raise ValueError("no exercise level has a positive weight; set one in factory.exercises.levels")

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._id(number) for number in range(*index.indices(self._count))]
        number = index + self._count if index < 0 else index
        if not 0 <= number < self._count:
            raise IndexError(f"task number {index} of {self._count}")
        return self._id(number)

    def __contains__(self, task_id: object) -> bool:
        """By its number, without making the others."""
        last = str(task_id).rpartition("/")[2]
        if not (last.isascii() and last.isdigit() and len(last) <= len(f"{self._count:06d}")):
            return False
        return int(last) < self._count and self._id(int(last)) == task_id

    def _id(self, number: int) -> str:
        level = self._names[0]
        if len(self._names) > 1:
            point = random.Random(f"level {self._seed} {self._split} {number}").random() * self._bounds[-1]
            level = self._names[bisect.bisect(self._bounds, point)]
        return f"{level}/{self._split}/{number:06d}"


class ExerciseSource:
    """Generated tasks of every level. Ids are `level/split/number`."""

    name = "exercises"

    def __init__(self, settings: ExerciseSettings) -> None:
        self.settings = settings

    def ids(self, split: Split, *, level: str | None = None) -> TaskIds:
        """The ids of a split: of one level, or of the mix that the settings weigh."""
        if level is not None and level not in LEVELS:
            raise ValueError(f"no exercise level {level!r}; there are: {', '.join(LEVELS)}")
        weights = {level: 1.0} if level else {str(name): weight for name, weight in self.settings.levels.items()}
        count = self.settings.train_tasks if split == "train" else self.settings.heldout_tasks
        return TaskIds(split, count, weights, self.settings.seed)

    def task(self, task_id: str) -> Task:
        """The task of an id; raises KeyError for an id that is not ours."""
        level, _, rest = task_id.partition("/")
        split, _, number = rest.partition("/")
        if level not in LEVELS or split not in SPLITS or not number.isdigit():
            raise KeyError(
                f"{task_id!r} is no exercise id; expected LEVEL/{'|'.join(SPLITS)}/NUMBER, e.g. one-bug/train/000123"
            )
        return LEVELS[level].build(task_id, Drawing(task_id, split, self.settings))
