"""A task as JSON, its files as what it changes of its project's tree; and back, without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etude.tasks.content import files_from_json, files_to_json, hidden_from_json, hidden_to_json
from etude.tasks.errors import TaskError
from etude.tasks.task import Task

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
