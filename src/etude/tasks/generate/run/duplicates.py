"""Rejects a task that asks for the same as another: two bugs in one place that the same tests show are one bug to the
agent that repairs it.

A generator sees only what it found in this run. A resumed run must also know the tasks that earlier runs put into the
folder.
"""

from __future__ import annotations

import asyncio
import hashlib
import json

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.protocols import FinalizeFunction
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task


class DuplicateFilter:
    """Belongs to one run. Reads a project's tasks once, when its first new task arrives."""

    def __init__(self, folder: TaskFolder) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, str]] = {}  # project -> signature -> task id
        self._lock = asyncio.Lock()

    def wrap_finalizer(self, finish: FinalizeFunction) -> FinalizeFunction:
        async def finalize_unless_known(task: Task, project: InstalledProject) -> Task:
            finalized = await finish(task, project)
            async with self._lock:
                if project.name not in self._known:
                    self._known[project.name] = await asyncio.to_thread(self._read, project.name)
            other = self._known[project.name].setdefault(task_signature(finalized), finalized.id)
            if other != finalized.id:
                raise CandidateRejected(f"it asks for the same as {other}")
            return finalized

        return finalize_unless_known

    def _read(self, project: str) -> dict[str, str]:
        rows = [row for row in self.folder.rows.values() if row.project == project]
        return {task_signature(self.folder.task(row.id)): row.id for row in reversed(rows)}


def task_signature(task: Task) -> str:
    """A digest that is equal for tasks that ask for the same.

    Of a bug it covers the places and the tests that show it. Of any other task it covers the files of the reference
    before and after: features removed from the same files have the same files restored.
    """
    generator, places, shown = (task.metadata.get(key) for key in ("generator", "places", "operators"))
    failing = task.hidden.get("fail_to_pass")
    content: object
    if places and shown and failing:
        content = [generator, sorted(places), sorted(failing)]
    else:
        before = [task.files.get(path, "") for path in sorted(task.solution)]
        content = [
            generator,
            task.grader,
            sorted(task.solution.items()),
            before,
            sorted(task.metadata.get("removed", ())),
        ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
