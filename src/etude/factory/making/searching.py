"""The last look before a task is taken: its sandbox as an agent gets it, searched whole for what its reference and hidden tests hold.

A second a task; a dependency that carries the project, or a tool's cache, is found by no proof over the task's own files.
"""

from __future__ import annotations

from etude.factory.generators.generator import Installed
from etude.factory.making.order import Finish
from etude.sandbox.protocol import SandboxPool
from etude.tasks.auditing.scan import audited, told
from etude.tasks.task import Task
from etude.tasks.validation.proof import LeftOut


def searching(finish: Finish, pool: SandboxPool) -> Finish:
    """Leaves out a task whose sandbox tells its answer."""

    async def finished(task: Task, project: Installed) -> Task:
        done = await finish(task, project)
        if found := told(await audited(done, pool)):
            raise LeftOut(f"its sandbox tells: {'; '.join(found[:3])}")
        return done

    return finished
