"""The code index of rollouts: one service process for a batch, a base per task, an overlay per attempt. The index of `etude agent`, by another
way to the files.

Promise 8: a service that is gone is an infra fault. It is started again for the attempt's next try, which begins with nothing of the last one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from etude.agent.code_index.base import Base
from etude.agent.code_index.client import IndexClient
from etude.agent.code_index.errors import IndexRefused, ServiceLost
from etude.agent.code_index.process import BaseService
from etude.agent.harness.code_index import OverlaidIndex
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.sandbox.errors import InfraError
from etude.sandbox.protocol import Operations
from etude.tasks.task import Task


class CodeSearch:
    """Gives attempts their services. Make it with `code_search`."""

    def __init__(self, service: BaseService) -> None:
        self._service = service

    @asynccontextmanager
    async def services(self, task: Task, sandbox: Operations) -> AsyncIterator[AgentServices]:
        """For one attempt: its overlay goes with it. Raises InfraError where there is no service, or it takes not the task's files."""
        base = Base({path: text.encode() for path, text in task.files.items()})
        try:
            await self._service.ensure()
            line = IndexClient(self._service.socket, base)
            await line.open()
        except (ServiceLost, IndexRefused) as lost:
            raise InfraError(f"no code index for {task.id}: {lost}") from lost
        try:
            yield AgentServices(code_index=OverlaidIndex(line, sandbox, base))
        finally:
            await line.close()


@asynccontextmanager
async def code_search(harness: HarnessSettings) -> AsyncIterator[CodeSearch | None]:
    """As long as a batch lasts; None where the harness offers no search by meaning."""
    if not harness.codebase_search:
        yield None
        return
    service = BaseService()
    try:
        yield CodeSearch(service)
    finally:
        await service.close()
