"""The workspace as the reference leaves it."""

from __future__ import annotations

from etude.tasks.task import Task


def reference_files(task: Task) -> dict[str, bytes]:
    """The files with the reference solution in them; what the reference takes away is in metadata.removed."""
    removed = set(task.metadata.get("removed", ()))
    return {path: text.encode() for path, text in {**task.files, **task.solution}.items() if path not in removed}
