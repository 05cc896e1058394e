"""A pool over a store of its own, for each module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("layers"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(layers: str) -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="local", layers=layers))
    except Unsupported as error:
        pytest.skip(str(error))
    if not made.probe().snapshots:
        await made.close()
        pytest.skip(f"no snapshots here: {made.probe().reason}")
    yield made
    await made.close()
