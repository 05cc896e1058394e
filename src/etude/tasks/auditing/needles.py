"""What must not be found: the reference's own lines and names, and those of hidden tests, as far as the agent does not have them anyway.

A window is three lines that follow each other, without indentation and blank lines, at least one of which is nowhere in the agent's files.
What people write everywhere (`@property`, `return self`) makes a window that other projects hold as well: of many windows of the reference, or
of the hidden tests, a file must hold several, up to `SEVERAL`; where there are few, one tells.
Names are identifiers of six letters and more that stand nowhere in them; they are looked for in compiled files and archives, where there
are no lines, and count where a file of the same stem, or of the project's name, holds most of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from etude.tasks.task import Task

LINES = 3
LEAST_CHARS = 24  # of a window: three closing brackets are no copy
MOST = 4000
SEVERAL, OF = 8, 20  # a twentieth of the windows, at most eight
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{5,}")


@dataclass(frozen=True)
class Needles:
    """`windows`: those of the reference, then those of hidden tests; `least` of either that a file must hold."""

    windows: tuple[tuple[str, ...], tuple[str, ...]]
    names: tuple[str, ...]
    stems: tuple[str, ...]  # of the files that the reference writes
    project: str

    @property
    def least(self) -> tuple[int, int]:
        reference, tests = (max(1, min(SEVERAL, len(part) // OF)) for part in self.windows)
        return reference, tests

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"least": self.least}


def needles(task: Task) -> Needles:
    visible = {line.strip() for text in task.files.values() for line in text.splitlines()}
    words = {word for text in task.files.values() for word in _NAME.findall(text)}
    hidden = [text for text in task.hidden.get("files", {}).values() if isinstance(text, str)]
    windows = _windows(task.solution.values(), visible)
    names = dict.fromkeys(word for text in task.solution.values() for word in _NAME.findall(text) if word not in words)
    stems = tuple(sorted({PurePosixPath(path).name.split(".")[0] for path in task.solution}))
    project = str(task.metadata.get("environment", {}).get("project", ""))
    return Needles((windows, _windows(hidden, visible)), tuple(names)[:MOST], stems, project)


def _windows(texts: Iterable[str], visible: Collection[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        for at in range(max(1, len(lines) - LINES + 1)):
            window = lines[at : at + LINES]
            if len("".join(window)) >= LEAST_CHARS and any(line not in visible for line in window):
                found["\n".join(window)] = None
    return tuple(found)[:MOST]
