"""The escapes are tried from our namespaces, bubblewrap's, and ours around a folder of the host, each under either runner."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

KINDS = (
    "local",
    "local-native",
    pytest.param("bubblewrap", marks=pytest.mark.walls),
    pytest.param("bubblewrap-native", marks=pytest.mark.walls),
    "around",
    "around-native",
)


OWNER = 12345  # of a person's folder, where root tests


class Around:
    """A pool whose sandboxes each work in a folder of the host."""

    def __init__(self, pool: SandboxPool, above: Path) -> None:
        self._pool, self._above = pool, above.resolve()
        self._above.chmod(0o755)

    async def create(self, spec: SandboxSpec) -> Sandbox:
        folder = self._above / str(len(list(self._above.iterdir())))
        folder.mkdir()
        for name, data in spec.files.items():
            (folder / name).write_bytes(data)
        if os.geteuid() == 0:
            for path in (folder, *folder.iterdir()):
                os.chown(path, OWNER, OWNER)
        return await self._pool.create(replace(spec, folder=str(folder), workdir=str(folder), files={}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool(kind: str) -> AsyncIterator[SandboxPool]:
    try:
        made = await open_pool(SandboxSettings(backend="bubblewrap" if kind.startswith("bubblewrap") else "local"))
    except Unsupported as error:
        pytest.skip(str(error))
    if kind.endswith("native") and made.probe().runner != "native":
        await made.close()
        pytest.skip("no native runner can be built here")
    with tempfile.TemporaryDirectory() as above:
        yield cast(SandboxPool, Around(made, Path(above))) if kind.startswith("around") else made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def box(pool: SandboxPool, kind: str) -> AsyncIterator[Sandbox]:
    made = await pool.create(SandboxSpec(files={"hello.txt": b"hello\n"}, warm_python=not kind.endswith("native")))
    yield made
    await made.kill()


@pytest.fixture
def own_root(kind: str) -> None:
    """For promises about a root of the sandbox' own."""
    if kind.startswith("around"):
        pytest.skip("around a folder the host is in sight")


Python = Callable[[str], Awaitable[str]]


@pytest.fixture
def python(box: Sandbox) -> Python:
    """Run a program inside; what it printed, the same warm and cold."""

    async def run(code: str) -> str:
        outs: list[str] = []
        for warm in (False, True) if box.spec.warm_python else (False,):
            done = await box.run(["python3", "-c", code], warm=warm)
            assert done.rc == 0, done.err
            outs.append(done.out.decode().strip())
        assert len(set(outs)) == 1
        return outs[0]

    return run
