"""A folder of tasks, written as they are made and read as they are needed.

    index.jsonl             a row a task, in the order in which they were added
    records/<id>.json       what the task changes of its project's tree, its hidden part, its reference, its metadata
    environments/<name>/    the project (trees.py)
    audits.jsonl            what the last check found of each (audits.py)

Promises: a task is whole before its row is in the index, so a kill at any point loses at most the one in flight; a torn last row goes;
a record matches its row's digest (`verify`); listing reads the index alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from etude.core.files import append_lines, replace_file
from etude.tasks.content import files_from_json, files_to_json, hidden_from_json, hidden_to_json
from etude.tasks.environment.environment import Environment, environment_of
from etude.tasks.errors import TaskError
from etude.tasks.place import folder_of
from etude.tasks.store.trees import Trees, tree_digest
from etude.tasks.task import Split, Task
from etude.tasks.task_row import TaskRow, record_digest, row_of

# A task as JSON, its files as what it changes of its project's tree; and back, without loss.


VERSION = 1


def record_of(task: Task, tree: Mapping[str, str]) -> dict[str, Any]:
    """`tree` empty: the task's own files are all there is."""
    return {
        "version": VERSION,
        "id": task.id,
        "category": task.category,
        "level": task.level,
        "split": task.split,
        "instruction": task.instruction,
        "test_command": list(task.test_command),
        "grader": task.grader,
        "changed": files_to_json({path: text for path, text in task.files.items() if tree.get(path) != text}),
        "removed": sorted(path for path in tree if path not in task.files),
        "hidden": hidden_to_json(task.hidden),
        "solution": files_to_json(task.solution),
        "metadata": task.metadata,
    }


def task_of(record: Mapping[str, Any], tree: Mapping[str, str]) -> Task:
    """Raises TaskError that names the key."""
    try:
        if record["version"] != VERSION:
            raise TaskError(
                f"record version {record['version']!r} is not {VERSION}: a later version of this program wrote it"
            )
        gone = set(record["removed"])
        return Task(
            id=record["id"],
            category=record["category"],
            level=record["level"],
            instruction=record["instruction"],
            files={path: text for path, text in tree.items() if path not in gone} | files_from_json(record["changed"]),
            test_command=tuple(record["test_command"]),
            grader=record["grader"],
            hidden=hidden_from_json(record["hidden"]),
            solution=files_from_json(record["solution"]),
            split=record["split"],
            metadata=record["metadata"],
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise TaskError(f"it is no record of a task ({type(error).__name__}: {error}); make the task again") from error


# What the last check found of each task of a folder: `audits.jsonl`, a line a task, next to the records and never in
# them.
#
# A task that is read has it as `metadata["audit"]`, so that an export carries it along; its digest does not change. A
# finding about other content than the row's is not shown.


FILE, KEY = "audits.jsonl", "audit"


class Audits:
    def __init__(self, root: Path) -> None:
        self._place = root / FILE
        self._known: dict[tuple[str, str], dict[str, Any]] | None = None

    def of(self, task_id: str, digest: str) -> Mapping[str, Any] | None:
        """None for a task that was never checked as it is now."""
        if self._known is None:
            self._known = self._read()
        return self._known.get((task_id, digest))

    def add(self, task_id: str, digest: str, audit: Mapping[str, Any]) -> None:
        """The last one counts."""
        if self.of(task_id, digest) == audit:
            return
        with open(self._place, "a", encoding="utf-8") as file:
            file.write(json.dumps({"id": task_id, "digest": digest, KEY: dict(audit)}, allow_nan=False) + "\n")
        assert self._known is not None
        self._known[task_id, digest] = dict(audit)

    def _read(self) -> dict[tuple[str, str], dict[str, Any]]:
        """A torn last line is no finding."""
        if not self._place.is_file():
            return {}
        lines = self._place.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        return {(row["id"], row["digest"]): row[KEY] for row in rows}


INDEX, RECORDS, ENVIRONMENTS = "index.jsonl", "records", "environments"


class TaskProject(Protocol):
    """What is kept of a task's project (`factory.generators.generator.Installed`)."""

    @property
    def environment(self) -> Environment: ...
    @property
    def files(self) -> Mapping[str, str]: ...
    @property
    def origin(self) -> str: ...
    @property
    def licence(self) -> str: ...


def is_folder(root: Path) -> bool:
    return (root / INDEX).is_file()


class TaskFolder:
    """A TaskSource. `make`: for its one writer, who may begin it here and repairs what a kill tore; a reader during the writing leaves the
    index as it is. Raises TaskError."""

    def __init__(self, root: Path, *, make: bool = False) -> None:
        self.root, self.name = root, root.name
        self._index = root / INDEX
        if not self._index.is_file():
            if not make:
                raise TaskError(
                    f"{root} is no folder of tasks (it has no {INDEX}): make one with `etude tasks make --out {root}`"
                )
            root.mkdir(parents=True, exist_ok=True)
            self._index.touch()
        self._writes = make
        self.trees = Trees(root / ENVIRONMENTS)
        self.audits = Audits(root)
        self.rows: dict[str, TaskRow] = {row.id: row for row in self._read()}
        self._files = {self._place(task_id).name: task_id for task_id in self.rows}

    def ids(self, split: Split | None = None, *, level: str | None = None) -> Sequence[str]:
        """In the order of the index; a row that was replaced keeps its first place."""
        return [
            row.id for row in self.rows.values() if (not split or row.split == split) and level in (None, row.level)
        ]

    def task(self, task_id: str) -> Task:
        """Raises KeyError for an id that is not here, TaskError for a record that can't be read."""
        if task_id not in self.rows:
            raise KeyError(
                f"{self.root} holds no task {task_id!r}; `etude tasks list {self.root}` prints those that there are"
            )
        record = self._record(task_id)
        task = task_of(record, self._tree(record))
        audit = self.audits.of(task_id, self.rows[task_id].digest)
        return task if audit is None else replace(task, metadata={**task.metadata, KEY: dict(audit)})

    def add(self, task: Task, project: TaskProject | None = None, recipe: str = "") -> TaskRow:
        """Whole or not at all. A task that is here already is replaced. Raises TaskError."""
        self._require_writer()
        environment = environment_of(task.metadata)
        tree: Mapping[str, str] = {}
        if environment is not None and project is not None:
            tree = project.files
            about = {
                "environment": project.environment.to_record(),
                "origin": project.origin,
                "licence": project.licence,
            }
            self.trees.put(environment.name, tree, about, recipe)
        elif environment is not None and environment.name in self.trees.names():
            tree = self.trees.tree(environment.name)
        if KEY in task.metadata:  # of a task that was read from a folder, and belongs next to its record
            task = replace(task, metadata={key: value for key, value in task.metadata.items() if key != KEY})
        record = record_of(task, tree)
        row = row_of(task, record_digest(record, tree_digest(tree)))
        place = self._place(task.id)
        if (other := self._files.get(place.name, task.id)) != task.id:
            raise TaskError(f"{task.id!r} and {other!r} would be kept in one file, {place.name}: give one another id")
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, json.dumps(record, ensure_ascii=False, allow_nan=False))
        append_lines(self._index, row.to_json().encode() + b"\n", durable=True)
        self.rows[task.id] = row
        self._files[place.name] = task.id
        return row

    def remove(self, task_id: str) -> None:
        """The row first: a record without one is no task. Raises KeyError, TaskError."""
        self._require_writer()
        del self.rows[task_id]
        replace_file(self._index, "".join(row.to_json() + "\n" for row in self.rows.values()))
        self._place(task_id).unlink(missing_ok=True)
        del self._files[self._place(task_id).name]

    def verify(self) -> dict[str, str]:
        """What is wrong, by id; empty if every record is the one that was added."""
        wrong: dict[str, str] = {}
        for row in self.rows.values():
            try:
                record = self._record(row.id)
                found = record_digest(record, tree_digest(self._tree(record)))
            except TaskError as error:
                wrong[row.id] = str(error)
                continue
            if found != row.digest:
                wrong[row.id] = (
                    f"its record is {found[:12]}, the index says {row.digest[:12]}: it was changed after it was made"
                )
        return wrong

    def _require_writer(self) -> None:
        if not self._writes:
            raise TaskError(f"{self.root} was opened to be read; TaskFolder(root, make=True) writes")

    def _tree(self, record: Mapping[str, Any]) -> Mapping[str, str]:
        environment = environment_of(record.get("metadata", {}))
        if environment is None or environment.name not in self.trees.names():
            return {}
        return self.trees.tree(environment.name)

    def _record(self, task_id: str) -> dict[str, Any]:
        place = self._place(task_id)
        try:
            return json.loads(place.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise TaskError(f"{place} can't be read ({error}): make the task again, or remove its row") from error

    def _place(self, task_id: str) -> Path:
        """In one folder, whatever slashes ids have."""
        name = folder_of(Path(), task_id).name
        return self.root / RECORDS / f"{name}.json"

    def _read(self) -> Iterator[TaskRow]:
        data = self._index.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data) and self._writes:  # a kill tore the last row: its task is made again
            os.truncate(self._index, len(whole))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                yield TaskRow(**json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise TaskError(
                    f"{self._index}, line {number} is no row of a task ({error}): remove the line"
                ) from error
