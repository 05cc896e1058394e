"""Tasks of our own sources as a folder keeps them: with the figures that an index tells of every task."""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher

from etude.tasks.task import Task


def describe_change(task: Task, generator: str) -> Task:
    """With who made it, and how much its reference changes."""
    lines = sum(_changed(task.files.get(path, ""), text) for path, text in task.solution.items())
    metadata = {"generator": generator, "changed": {"lines": lines, "files": len(task.solution)}, **task.metadata}
    if package := task.metadata.get("package"):
        metadata["project"] = f"{package}-{task.metadata['version']}"
    return replace(task, metadata=metadata)


def _changed(before: str, after: str) -> int:
    """Lines added and removed."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum((j - i) + (n - k) for tag, i, j, k, n in matcher.get_opcodes() if tag != "equal")
