"""The leak audit of a task's sandbox, as an agent gets it: born, its history looked at, its whole file system searched.

`audited` returns `metadata["audit"]` of a checked task: the history's proof, how much was read, what was found.
"""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any

from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Machines
from etude.sandbox.spec import SandboxSpec
from etude.tasks.auditing.needles import needles
from etude.tasks.environment.birth import history_of
from etude.tasks.environment.workspace import open_workspace
from etude.tasks.running.channel import INSIDE
from etude.tasks.task import Task

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
