"""One pool of namespaces for each module here, with a ledger and layers of its own."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings

sys.path.insert(0, str(Path(__file__).parents[1]))  # tests are no package: this is how they share the leak checker


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lifetimes") / "ledger"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cells(ledger: Path) -> AsyncIterator[LocalPool]:
    layers = str(ledger.parent / "layers")
    try:
        made = await open_pool(SandboxSettings(backend="local", ledger=str(ledger), layers=layers))
    except Unsupported as error:
        pytest.skip(str(error))
    assert isinstance(made, LocalPool)
    yield made
    await made.close()
