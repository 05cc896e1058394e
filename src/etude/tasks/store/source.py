"""A folder of tasks as what training and benches draw from: by split, by weights of categories, records read when a task is attempted.

Promise 10: a project that has tasks to train on has none to be measured by. The folder is refused where that is not so, regardless of its maker,
and a record that claims another split than its row is no task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from etude.core.fingerprint.project import project_name
from etude.tasks.errors import TaskError
from etude.tasks.mix.weights import category_shares
from etude.tasks.splits import bare_name
from etude.tasks.store.opened import Tasks
from etude.tasks.task import SPLITS, Split, Task
from etude.tasks.task_row import TaskRow


class FolderTaskSource:
    """A TaskSource. `weights`: of categories; empty: every task alike. Raises TaskError where splits share a project."""

    def __init__(self, tasks: Tasks, weights: Mapping[str, float] | None = None) -> None:
        self.tasks, self.name = tasks, tasks.name
        self._weights = dict(weights or {})
        require_apart(tasks.rows.values(), tasks.name)

    def ids(self, split: Split, *, level: str | None = None) -> Sequence[str]:
        return self.tasks.ids(split, level=level)

    def task(self, task_id: str) -> Task:
        """Raises KeyError for an id that is not here, TaskError for a record that is not its row's."""
        task = self.tasks.task(task_id)
        if task.split != (listed_split := self.tasks.rows[task_id].split):
            raise TaskError(
                f"{self.name}: the record of {task_id} is of the split {task.split}, its row says {listed_split}: make the task again"
            )
        return task

    def rows(self, split: Split) -> list[TaskRow]:
        return [row for row in self.tasks.rows.values() if row.split == split]

    def signs(self) -> dict[str, tuple[float | None, float | None]]:
        """What rollouts took, of the training tasks (`tasks difficulty --runs`)."""
        return {row.id: (row.turns, row.thinking) for row in self.rows("train")}

    def levels(self, split: Split) -> dict[str, float]:
        """How a draw over the split weighs its levels: by the categories' weights, else by how many tasks there are; within a category
        tasks are alike. Raises TaskError where nothing is there to draw."""
        rows = self.rows(split)
        if not rows:
            there = ", ".join(f"{count} {name}" for name in SPLITS if (count := len(self.rows(name)))) or "none at all"
            raise TaskError(f"{self.name} holds no {split} task (there are {there}): {_remedy(split)}")
        counts = Counter((row.category, row.level) for row in rows)
        if not self._weights:
            return _by_level({pair: float(count) for pair, count in counts.items()})
        shares = category_shares(rows, self._weights).shares
        whole = Counter(row.category for row in rows)
        return _by_level(
            {(kind, level): shares.get(kind, 0.0) * count / whole[kind] for (kind, level), count in counts.items()}
        )

    def apart(self, split: Split) -> str:
        """The statement of a report: what is measured by and trained on, by projects, and by modules where projects are split within."""
        rows, trained = self.rows(split), self.rows("train")
        own, trained_projects = ({row.project for row in some if row.project} for some in (rows, trained))
        if not (shared := own & trained_projects):
            return f"tasks of {len(own)} projects, none of which is among the {len(trained_projects)} projects that are trained on"
        parts = {(row.project, row.part) for row in rows if row.project in shared}
        return (
            f"tasks about {len(parts)} modules of {len(shared)} projects whose other modules are trained on, and of "
            f"{len(own) - len(shared)} other projects: no task that is trained on changes these modules, but it sees their files"
        )


def _remedy(split: Split) -> str:
    if split == "train":
        return "make more tasks, or with smaller shares of --validation and --heldout"
    return f"make more tasks, with a larger share of --{split}, or with --split-by module where there are few projects"


def _by_level(found: Mapping[tuple[str, str], float]) -> dict[str, float]:
    levels: dict[str, float] = {}
    for (_, level), weight in sorted(found.items()):
        levels[level] = levels.get(level, 0.0) + weight
    return levels


def require_apart(rows: Iterable[TaskRow], name: str) -> None:
    """Raises TaskError for the first project, or module of a project that is split within, with tasks in two splits."""
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    whole: dict[str, bool] = {}
    for row in rows:
        if not row.project:
            continue
        own = project_name(bare_name(row.project))
        what = f"the module {row.part} of {own}" if row.part else f"the project {own}"
        if whole.setdefault(own, not row.part) != (not row.part):
            raise TaskError(f"{name}: {own} has tasks split by project and by module: remove those of one kind")
        split, first = seen.setdefault((own, row.part), (row.split, row.id))
        if split != row.split:
            raise TaskError(
                f"{name}: {what} has tasks to be trained on and measured by ({first} is {split}, {row.id} is {row.split}): "
                "remove those of one split"
            )
