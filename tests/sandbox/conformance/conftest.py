"""One real pool of each maker for each test module, one sandbox for each test."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share the makers
from makers import MAKERS, MadePool, open_maker

_PARAMETERS = [pytest.param(name, marks=[pytest.mark.nightly] if maker.slow else []) for name, maker in MAKERS.items()]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=_PARAMETERS)
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[MadePool]:
    try:
        made = await open_maker(MAKERS[request.param])
    except Unsupported as error:
        pytest.skip(str(error))
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(pool: MadePool) -> AsyncIterator[Sandbox]:
    made = await pool.create(SandboxSpec(files={"hello.txt": b"hello\n"}))
    yield made
    await made.kill()


@pytest.fixture(autouse=True)
def _warm_only_where_there_is_an_interpreter(request: pytest.FixtureRequest) -> None:
    if "pool" not in request.fixturenames:
        return
    callspec = getattr(request.node, "callspec", None)
    asked = callspec is not None and callspec.params.get("warm") is True
    if (asked or request.node.get_closest_marker("warm")) and not request.getfixturevalue("pool").is_warm:
        pytest.skip("the native runner has no interpreter to fork; it refuses warm runs")


@pytest.fixture
def seen_from_outside(pool: MadePool) -> None:
    if pool.maker.hidden:
        pytest.skip("what runs inside is no process of the host's: it can't be looked at from there")


@pytest.fixture
def mark() -> int:
    """Sleeps of this number of seconds are this run's: another on the same machine has others."""
    return 3_000_000_000 + 100 * os.getpid()
