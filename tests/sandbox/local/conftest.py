"""A pool of our own namespaces over a store of layers that the tests write by hand, and its maker of births."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.creation import SandboxCreator
from etude.sandbox.errors import Unsupported
from etude.sandbox.inside.zygote import UNPRIVILEGED_UIDS
from etude.sandbox.launch.zygotes import ZygotePool
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.settings import SandboxSettings

Layer = Callable[[str, dict[str, bytes]], str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    folder.chmod(0o755)  # sandboxes made by root are another user
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cells(store: Path) -> AsyncIterator[LocalPool]:
    try:
        pool = await LocalPool.open(SandboxSettings(backend="local"), ZygotePool((str(store),)))
    except Unsupported as error:
        pytest.skip(str(error))
    yield pool
    await pool.close()


@pytest.fixture
def maker(cells: LocalPool) -> SandboxCreator:
    return cells._creator


@pytest.fixture
def layer(store: Path) -> Layer:
    """Write a layer: name, then contents by path; a name that ends in / is a folder. Its owner is whom sandboxes are outside."""

    def write(name: str, files: dict[str, bytes]) -> str:
        folder = store / name
        folder.mkdir()
        for path, data in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir() if path.endswith("/") else target.write_bytes(data)
        for found in (folder, *folder.rglob("*")):
            found.chmod(0o755)
            if os.geteuid() == 0:
                os.chown(found, UNPRIVILEGED_UIDS[0], UNPRIVILEGED_UIDS[0], follow_symlinks=False)
        return str(folder)

    return write
