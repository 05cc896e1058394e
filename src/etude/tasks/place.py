"""Where a folder keeps a task, by the task's id."""

from __future__ import annotations

import re
from pathlib import Path

from etude.tasks.errors import TaskError

TASKS = "tasks"
MAX_ID_CHARS = 200  # file systems hold 255 bytes, and runs add a pass and an ending
_FOLDER = re.compile(rf"\w[^\\/\x00-\x1f\x7f]{{0,{MAX_ID_CHARS - 1}}}")


def folder_of(root: Path, task_id: str) -> Path:
    """Ids may hold slashes, folders lie side by side. Raises TaskError for an id that names no folder."""
    name = task_id.replace("/", "-")
    if not _FOLDER.fullmatch(name):
        raise TaskError(
            f"a task can't be called {task_id[:80]!r}: an id begins with a letter or digit, holds no control character and no "
            f"backslash, and has {MAX_ID_CHARS} characters at most"
        )
    return root / TASKS / name
