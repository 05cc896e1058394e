"""The workspace that is graded: the base files, with only those taken from the agent that the task lets it change.

Promise 9: tests, configuration and files that the agent added never reach the grading sandbox.
"""

from __future__ import annotations

from typing import Sequence

from etude.tasks.content import LINK, laid_over, mode_of
from etude.tasks.task import Task

# Exercise files are under 1 kB; a larger one is an attack on the grader or an accident, and fails either way.
MAX_FILE_BYTES = 64_000


def editable(task: Task) -> Sequence[str]:
    """The paths an agent may change; raises ValueError for a task that forgot to say."""
    paths = task.metadata.get("editable")
    if not isinstance(paths, list) or not paths:
        raise ValueError(f"task {task.id} names no editable paths; set metadata.editable to a list of paths")
    return paths


def restore_files(task: Task, files: dict[str, bytes], *, max_file_bytes: int = MAX_FILE_BYTES) -> dict[str, bytes]:
    """Base files as bytes, editable ones as the agent left them (absent if it removed them or made them huge)."""
    paths = editable(task)
    changed = {path: files[path] for path in paths if path in files and len(files[path]) <= max_file_bytes}
    return laid_over(changed, {path: text.encode() for path, text in task.files.items() if path not in paths})


def text_of(data: bytes | None) -> str | None:
    """A file's text, or None if it is missing, a link or not UTF-8."""
    try:
        return None if data is None or mode_of(data) == LINK else data.decode("utf-8")
    except UnicodeDecodeError:
        return None
