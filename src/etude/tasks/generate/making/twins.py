"""No task is taken twice under two names: two bugs in one place that the same tests show are one bug to whoever mends it.

A generator sees what it found in this run; a making that goes on must know what earlier runs put into the folder as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import json

from etude.tasks.generate.generator import Installed
from etude.tasks.generate.order import Finish
from etude.tasks.proof import LeftOut
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task


class Twins:
    """Belongs to one making. Reads a project's tasks once, when the first new one of it comes."""

    def __init__(self, folder: TaskFolder) -> None:
        self.folder = folder
        self._known: dict[str, dict[str, str]] = {}  # project -> what is asked -> the task that asks it
        self._one = asyncio.Lock()

    def finishing(self, finish: Finish) -> Finish:
        async def finished(task: Task, project: Installed) -> Task:
            done = await finish(task, project)
            async with self._one:
                if project.name not in self._known:
                    self._known[project.name] = await asyncio.to_thread(self._read, project.name)
            other = self._known[project.name].setdefault(asked(done), done.id)
            if other != done.id:
                raise LeftOut(f"it asks for the same as {other}")
            return done

        return finished

    def _read(self, project: str) -> dict[str, str]:
        rows = [row for row in self.folder.rows.values() if row.project == project]
        return {asked(self.folder.task(row.id)): row.id for row in reversed(rows)}


def asked(task: Task) -> str:
    """What tells a task from another: of a bug its places and the tests that show it, of any other what its reference changes, from what to
    what: features that were taken out of the same files have the same files put back."""
    generator, places, shown = (task.metadata.get(key) for key in ("generator", "places", "operators"))
    failing = task.hidden.get("fail_to_pass")
    told: object
    if places and shown and failing:
        told = [generator, sorted(places), sorted(failing)]
    else:
        before = [task.files.get(path, "") for path in sorted(task.solution)]
        told = [generator, task.grader, sorted(task.solution.items()), before, sorted(task.metadata.get("removed", ()))]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()
