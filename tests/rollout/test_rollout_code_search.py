"""A rollout's code index: a service that goes is our fault and retried (promise 8), and nothing of an attempt outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.agent.code_index.errors import ServiceLost
from etude.agent.code_index.process import BaseService
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.scripted import ScriptedPolicy
from etude.agent.workspace.local_folder import LocalFolder
from etude.core.trace.message import Message, ToolCall
from etude.rollout.attempt import AttemptSetup, attempt
from etude.rollout.code_search import CodeSearch, code_search
from etude.rollout.retry import InfraFault
from etude.rollout.settings import AttemptSettings
from etude.sandbox.spec import SandboxSpec
from etude.tasks.task import Task, Verdict

TASK = Task("t1", "debugging", "one-bug", "fix", {"shop.py": "def total(): ...\n"}, ("true",), "any")
SETTINGS = HarnessSettings.full(preset="search_replace", codebase_search=True)
ASK = Message("assistant", calls=(ToolCall("c0", "codebase_search", {"query": "total"}),))
SCRIPT = [ASK, Message("assistant", "found")]
FAST = AttemptSettings(attempts=2, first_delay_s=0.0)


class FolderSandbox(LocalFolder):
    """A sandbox without walls."""

    def __init__(self, root: Path, spec: SandboxSpec) -> None:
        super().__init__(root)
        self.id = root.name
        for path, data in spec.files.items():
            (root / path).write_bytes(data)

    async def kill(self) -> None: ...


class FolderPool:
    def __init__(self, home: Path) -> None:
        self._home, self.made = home, 0

    async def create(self, spec: SandboxSpec) -> Any:
        self.made += 1
        root = self._home / str(self.made)
        root.mkdir()
        return FolderSandbox(root, spec)

    async def close(self) -> None: ...

    def probe(self) -> Any: ...


class Counting:
    def __init__(self) -> None:
        self.graded = 0

    async def grade(self, task: Task, files: dict[str, bytes], pool: Any) -> Verdict:
        self.graded += 1
        return Verdict(1.0)


@pytest.fixture
async def service() -> AsyncIterator[BaseService]:
    service = BaseService()
    yield service
    await service.close()


def killing(service: BaseService, times: int) -> Any:
    """A policy's maker: as the first `times` tries begin, the service dies."""
    left = [times]

    class Killing(ScriptedPolicy):
        async def complete(self, request: Any) -> Any:
            process = service._process
            if left[0] and process is not None:
                left[0] -= 1
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
            return await super().complete(request)

    return lambda task, seed: Killing(SCRIPT)


async def test_a_service_that_dies_is_an_infra_fault_and_the_next_try_has_a_new_one(
    tmp_path: Path, service: BaseService
) -> None:
    grader = Counting()
    pool, graders, search = FolderPool(tmp_path), {"any": grader}, CodeSearch(service)
    setup = AttemptSetup(killing(service, 1), pool, graders, SETTINGS, settings=FAST, search=search)
    found = await attempt(TASK, setup)
    assert found.tries == 2 and grader.graded == 1
    assert found.outcome.session.of("tool_result")[0].data["text"].startswith("shop.py:1-1 total")

    with pytest.raises(InfraFault, match="etude index serve"):
        await attempt(TASK, replace(setup, policy=killing(service, 99)))
    assert grader.graded == 1, "what was ours is never scored"


async def test_an_overlay_goes_with_its_attempt_and_attempts_do_not_see_each_other(
    tmp_path: Path, service: BaseService
) -> None:
    search, pool = CodeSearch(service), FolderPool(tmp_path)
    spec = SandboxSpec(files={path: text.encode() for path, text in TASK.files.items()})

    async def one(number: int) -> list[str]:
        machine = await pool.create(spec)
        async with search.services(TASK, machine) as services:
            index = services.code_index
            assert index is not None
            await machine.write(f"own_{number}.py", f"def own_{number}(): ...\n".encode())
            await index.search("own", limit=9, under=None)
            await asyncio.sleep(0.05)
            return [hit.path for hit in await index.search("own", limit=9, under=None)]

    assert await asyncio.gather(*map(one, range(12))) == [[f"own_{number}.py"] for number in range(12)]
    async with search.services(TASK, await pool.create(spec)) as services:
        assert services.code_index is not None and not await services.code_index.search("own", limit=9, under=None)


async def test_nothing_is_started_where_the_harness_offers_no_search() -> None:
    async with code_search(HarnessSettings()) as found:
        assert found is None


async def test_a_service_ends_with_its_batch_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with code_search(SETTINGS) as search:
        assert search is not None
        async with search.services(TASK, await FolderPool(tmp_path).create(SandboxSpec())):
            service = search._service
            process, home = service._process, service.socket.parent
            assert process is not None and home.stat().st_mode & 0o077 == 0
    assert process.returncode == 0 and not home.exists()


async def test_a_service_that_cannot_start_says_so(service: BaseService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ServiceLost, match="did not start"):
        await service.ensure()
