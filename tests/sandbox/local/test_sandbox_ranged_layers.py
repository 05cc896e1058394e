"""Layers, which belong to one user on disk, as a range of users sees them: root's, through an idmapped mount."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.sandbox.creation import SandboxBase, SandboxCreator
from etude.sandbox.errors import Unsupported
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.spec import WORKDIR, SandboxSpec

from .conftest import Layer

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def ranged(cells: LocalPool, maker: SandboxCreator) -> SandboxCreator:
    if not cells.probe().uid_ranges:
        pytest.skip("no ranges of users here")
    return maker


async def test_layers_are_root_s_inside_and_stay_as_they_are(ranged: SandboxCreator, layer: Layer) -> None:
    """Test 18 of docs/sandbox.md, in a range: two sandboxes with different users over one layer."""
    if os.geteuid() != 0:
        pytest.skip("only root can show layers to a range")
    shared = layer("shared-by-ranges", {"work/file": b"before", "work/other": b"same"})
    spec = SandboxSpec(uid_mode="range")
    one, two = [await ranged.make(spec, SandboxBase((shared,))) for _ in range(2)]
    before = os.stat(f"{shared}{WORKDIR}/file")
    said = await one.run("stat -c %u:%g file; echo after > file; chown 33:33 file; stat -c %u:%g file; rm other; ls")
    assert said.out.split() == [b"0:0", b"33:33", b"file"], said
    assert (await two.read("file")) == b"before" and len(await two.list()) == 2
    upper = one._channel.granted["upper"]
    assert os.stat("work/file", dir_fd=upper).st_uid == one.backend_handle.uid + 33  # type: ignore[union-attr]
    after = os.stat(f"{shared}{WORKDIR}/file")
    assert (after.st_uid, after.st_size, after.st_ino) == (before.st_uid, 6, before.st_ino)
    mounts = await two.run("cat /proc/self/mountinfo; ls /.layers")
    assert os.path.dirname(shared).encode() not in mounts.out
    await one.kill()
    await two.kill()


async def test_only_root_can_show_layers_to_a_range(ranged: SandboxCreator, layer: Layer) -> None:
    """The zygote's helper gets a store that it can't open: the demand is refused, by name, and nothing is left."""
    store = Path(ranged._backend.stores[0])
    moved = store.with_name(store.name + "-moved")
    path = layer("unseen", {"work/file": b"1"})
    store.rename(moved)
    try:
        with pytest.raises(Unsupported, match="uid_mode='range' over layers.*take uid_mode='single'"):
            await ranged.make(SandboxSpec(uid_mode="range"), SandboxBase((path,)))
        plain = await ranged.make(SandboxSpec(uid_mode="range"))  # misses nothing
        await plain.kill()
    finally:
        moved.rename(store)


async def test_nothing_that_speaks_with_root_is_inside(ranged: SandboxCreator) -> None:
    """Test 43 of docs/sandbox.md, in a range: neither process 1 nor a command holds the helper's socket."""
    box = await ranged.make(SandboxSpec(uid_mode="range", warm_python=False))
    await box._channel.hello
    pid = next(int(line.split()[1]) for line in _fdinfo(box._channel.pidfd) if line.startswith("Pid:"))
    held = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    assert sum(name.startswith("socket:") for name in held) == 1, held
    assert not any("etude-uids" in name for name in held), held
    await box.kill()


def _fdinfo(fd: int) -> list[str]:
    return Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
