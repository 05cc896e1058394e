"""One real pool for each test module, one sandbox for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

BACKENDS = ("local", "bubblewrap")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=BACKENDS)
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend=request.param))
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(pool: SandboxPool) -> AsyncIterator[Sandbox]:
    made = await pool.create(SandboxSpec(files={"hello.txt": b"hello\n"}))
    yield made
    await made.kill()
