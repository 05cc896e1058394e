"""What must not be found: the reference's own lines and names, and those of hidden tests, as far as the agent does not have them anyway.

A window is three lines that follow each other, without indentation and blank lines, at least one of which is nowhere in the agent's files.
Names are identifiers of six letters and more that stand nowhere in them; they are looked for in compiled files and archives, where there
are no lines, and count where a file of the same stem, or of the project's name, holds most of them.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from etude.tasks.task import Task

LINES = 3
LEAST_CHARS = 24  # of a window: three closing brackets are no copy
MOST = 4000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{5,}")


@dataclass(frozen=True)
class Needles:
    windows: tuple[str, ...]
    names: tuple[str, ...]
    stems: tuple[str, ...]  # of the files that the reference writes
    project: str

    def told(self) -> dict[str, Any]:
        return asdict(self)


def needles(task: Task) -> Needles:
    visible = {line.strip() for text in task.files.values() for line in text.splitlines()}
    words = {word for text in task.files.values() for word in _NAME.findall(text)}
    secret = {
        **task.solution,
        **{path: text for path, text in task.hidden.get("files", {}).items() if isinstance(text, str)},
    }
    windows: dict[str, None] = {}
    names: dict[str, None] = {}
    for path, text in secret.items():
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for at in range(max(1, len(lines) - LINES + 1)):
            window = lines[at : at + LINES]
            if len("".join(window)) >= LEAST_CHARS and any(line not in visible for line in window):
                windows["\n".join(window)] = None
        if path in task.solution:
            names |= dict.fromkeys(word for word in _NAME.findall(text) if word not in words)
    stems = tuple(sorted({PurePosixPath(path).name.split(".")[0] for path in task.solution}))
    project = str(task.metadata.get("environment", {}).get("project", ""))
    return Needles(tuple(windows)[:MOST], tuple(names)[:MOST], stems, project)
