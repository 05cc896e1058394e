"""The leak audit of a task's sandbox, as an agent gets it: born, its history looked at, its whole file system searched.

`audited` returns `metadata["audit"]` of a checked task: the history's proof, how much was read, what was found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any

from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.environment.birth import history_of
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.running.channel import INSIDE
from etude.tasks.task import Task

# What must not be found: the reference's own lines and names, and those of hidden tests, as far as the agent does not
# have them anyway.
#
# A window is three lines that follow each other, without indentation and blank lines, at least one of which is
# nowhere in the agent's files. What people write everywhere (`@property`, `return self`) makes a window that other
# projects hold as well: of many windows of the reference, or of the hidden tests, a file must hold several, up to
# `SEVERAL`; where there are few, one tells. Names are identifiers of six letters and more that stand nowhere in them;
# they are looked for in compiled files and archives, where there are no lines, and count where a file of the same
# stem, or of the project's name, holds most of them.


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


SCAN_TIMEOUT_S = 300.0
SKIPPED = ("/opt", INSIDE)  # our own read-only tools


async def scan_for_leaks(task: Task, pool: Machines) -> dict[str, Any]:
    """{"history": proof or None, "files": read, "bytes": read, "unread": [...], "found": [{path, what, text}]}. Raises InfraError.

    `unread` holds "path: reason" of what could not be searched whole, damaged archives among it.
    """
    sandbox = await open_workspace(
        task, pool, SandboxSpec(), lambda spec: replace(spec, warm_python=False), history=True
    )
    try:
        request = needles(task).to_json() | {"skip": list(SKIPPED)}
        script = (files("etude.tasks.auditing") / "inside.py").read_text()
        done = await sandbox.run(
            ["python3", "-I", "-S", "-c", script],
            stdin=json.dumps(request).encode(),
            timeout_s=SCAN_TIMEOUT_S,
            max_output_bytes=16 << 20,
        )
        if done.rc != 0:
            raise InfraError(
                f"the leak scan of {task.id} did not end (status {done.rc}): {done.err[-300:].decode('utf-8', 'replace')}"
            )
        return {"history": await history_of(sandbox, task)} | json.loads(done.out)
    finally:
        await sandbox.kill()


def audit_problems(audit: dict[str, Any]) -> list[str]:
    """What is wrong, in words; empty for a clean sandbox."""
    found = [
        f"{one['path']}: {one['what']} of the reference or of hidden tests: {one['text']}" for one in audit["found"]
    ]
    history = audit["history"]
    return found + ([] if history is None or history["clean"] else [f"the history holds more than the task: {history}"])
