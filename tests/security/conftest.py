"""The escapes are tried from three kinds of inside: our namespaces under either runner, and bubblewrap's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

KINDS = ("local", "native", pytest.param("bubblewrap", marks=pytest.mark.walls))


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(kind: str) -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="bubblewrap" if kind == "bubblewrap" else "local"))
    except Unsupported as error:
        pytest.skip(str(error))
    if kind == "native" and made.probe().runner != "native":
        await made.close()
        pytest.skip("no native runner can be built here")
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(pool: SandboxPool, kind: str) -> AsyncIterator[Sandbox]:
    made = await pool.create(SandboxSpec(files={"hello.txt": b"hello\n"}, warm_python=kind != "native"))
    yield made
    await made.kill()


Python = Callable[[str], Awaitable[str]]


@pytest.fixture
def python(box: Sandbox) -> Python:
    """Run a program inside; what it printed, the same warm and cold."""

    async def run(code: str) -> str:
        outs: list[str] = []
        for warm in (False, True) if box.spec.warm_python else (False,):
            done = await box.run(["python", "-c", code], warm=warm)
            assert done.rc == 0, done.err
            outs.append(done.out.decode().strip())
        assert len(set(outs)) == 1
        return outs[0]

    return run
