"""Whatever holds tasks, as a source of them: a folder that was made here, or Harbor directories that we exported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from etude.tasks.errors import TaskError
from etude.tasks.harbor import HarborError, read_task
from etude.tasks.store.folder import TaskFolder, is_folder, record_of
from etude.tasks.task import Split, Task
from etude.tasks.task_row import TaskRow, record_digest, row_of


class Tasks(Protocol):
    """A TaskSource whose rows are known."""

    name: str

    @property
    def rows(self) -> Mapping[str, TaskRow]: ...
    def ids(self, split: Split | None = None, *, level: str | None = None) -> Sequence[str]: ...
    def task(self, task_id: str) -> Task: ...


class HarborTasks:
    """Every directory below `root` that we exported."""

    def __init__(self, root: Path) -> None:
        self.root, self.name = root, root.name
        self._places: dict[str, Path] = {}
        for file in sorted(root.rglob("task.toml")):
            try:
                task_id = read_task(file.parent).id
            except HarborError as error:
                raise TaskError(f"{error}; tasks of other harnesses come in by `etude tasks import`") from error
            if task_id in self._places:
                raise TaskError(f"{file.parent}: {self._places[task_id]} holds a task {task_id!r} too")
            self._places[task_id] = file.parent

        tasks = (self.task(task_id) for task_id in self._places)
        self.rows: Mapping[str, TaskRow] = {
            task.id: row_of(task, record_digest(record_of(task, {}), "")) for task in tasks
        }

    def ids(self, split: Split | None = None, *, level: str | None = None) -> Sequence[str]:
        return [row.id for row in self.rows.values() if split in (None, row.split) and level in (None, row.level)]

    def task(self, task_id: str) -> Task:
        if task_id not in self._places:
            raise KeyError(
                f"{self.root} holds no task {task_id!r}; `etude tasks list {self.root}` prints those that there are"
            )
        return read_task(self._places[task_id])


def open_tasks(root: Path) -> Tasks:
    """Raises TaskError for a folder that holds none."""
    if is_folder(root):
        return TaskFolder(root)
    if not root.is_dir():
        raise TaskError(f"{root}: there is no such folder of tasks")
    found = HarborTasks(root)
    if not found.ids():
        raise TaskError(
            f"{root} holds neither an index.jsonl (`etude tasks make`) nor a task.toml (`etude tasks export`)"
        )
    return found
