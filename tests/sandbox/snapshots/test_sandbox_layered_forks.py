"""Snapshots and forks of live sandboxes: one moment, nothing disturbed, each child separate."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from etude.sandbox.errors import CapacityExhausted, LayerCorrupt, SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.layers.collect import collect
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.snapshots.cache import open_store
from etude.sandbox.spec import FileChange, SandboxSpec, SnapshotRef

pytestmark = pytest.mark.asyncio(loop_scope="module")

SPEC = SandboxSpec(files={"a.py": b"a = 1\n", "d/b": b"b", "d/c": b"c"}, disk_mb=16)


@pytest_asyncio.fixture(loop_scope="module")
async def box(pool: LocalPool) -> AsyncIterator[Sandbox]:
    made = await pool.create(SPEC)
    yield made
    await made.kill()


async def _children(box: Sandbox, n: int) -> list[Sandbox]:
    found = await box.fork(n)
    assert all(not isinstance(one, SandboxError) for one in found), found
    return [one for one in found if not isinstance(one, SandboxError)]


async def _end(*boxes: Sandbox) -> None:
    await asyncio.gather(*(one.kill() for one in boxes))


async def test_a_child_starts_from_its_parents_files_and_no_one_sees_anothers(box: Sandbox) -> None:
    """Test 18 of docs/sandbox.md: edits, removals, renames, modes and attributes stay where they were made."""
    await box.run("chmod 751 a.py; echo t > /tmp/t; ln -s a.py link")
    one, two, three = await _children(box, 3)
    await one.run("echo one > a.py; rm -r d; mkdir d; echo new > d/new; mv link moved; chmod 600 /tmp/t")
    await two.run(["python3", "-c", "import os; os.setxattr('d/b', 'user.x', b'y'); os.chmod('d', 0o700)"])
    await box.run("echo parent > a.py; rm d/c")
    shown = [await each.run("cat a.py; ls -m d; readlink link moved; stat -c %a a.py /tmp/t d") for each in (one, two)]
    assert shown[0].out.split() == b"one new a.py 751 600 755".split()
    assert shown[1].out.split() == b"a = 1 b, c a.py 751 644 700".split()
    last = await three.run(
        "cat a.py; ls -m d; stat -c %a a.py /tmp/t d; python3 -c \"import os; print(os.listxattr('d/b'))\""
    )
    assert last.out.split() == b"a = 1 b, c 751 644 755 []".split()
    (grandchild,) = await _children(one, 1)
    assert (await grandchild.run("cat a.py; ls -m d")).out.split() == b"one new".split()
    (kept,) = await _children(two, 1)
    shown = await kept.run(
        ["python3", "-c", "import os; print(os.getxattr('d/b', 'user.x'), oct(os.stat('d').st_mode))"]
    )
    assert shown.out == b"b'y' 0o40700\n"
    await _end(one, two, three, grandchild, kept)


async def test_the_same_change_made_again_in_a_childs_child_is_one_more_layer(box: Sandbox) -> None:
    """Its layer has the digest of one below it, which the kernel mounts once in a chain only."""
    family = [box]
    for text in (b"1", b"2", b"1", b"2"):
        await family[-1].write("a.py", text)
        family += await _children(family[-1], 1)
    assert [await one.read("a.py") for one in family] == [b"1", b"2", b"1", b"2", b"2"]
    await _end(*family[1:])


async def test_a_fork_under_way_of_writing_is_one_moment_and_loses_nothing(box: Sandbox) -> None:
    """Test 17 of docs/sandbox.md: files are written in order, a hundred a second; each child has all up to some number."""
    writer = "i=0; while [ $i -lt 150 ]; do echo $i > n$i; i=$((i+1)); sleep 0.005; done"
    writing = asyncio.ensure_future(box.run(writer, timeout_s=60))
    children: list[Sandbox] = []
    for _ in range(4):
        await asyncio.sleep(0.1)
        children += await _children(box, 2)
    assert (await writing).rc == 0
    for child in children:
        listed = await child.list(".")
        numbers = sorted(int(entry.path[1:]) for entry in listed if entry.path[0] == "n")
        assert numbers == list(range(len(numbers)))
        full = [entry for entry in listed if entry.path[0] == "n" and entry.size_bytes]
        assert len(full) >= len(numbers) - 1, "only the last one may be between its making and its writing"
    assert len([e for e in await box.list(".") if e.path[0] == "n"]) == 150
    await _end(*children)


async def test_a_snapshot_outlives_its_sandbox_and_its_pool(layers: str, box: Sandbox) -> None:
    """Test 21 of docs/sandbox.md, over live sandboxes."""
    await box.run("echo 2 > a.py; rm d/b")
    ref = await box.snapshot("task/of-mine")
    await box.kill()
    other = await open_pool(SandboxSettings(backend="local", layers=layers))
    for found in (ref, SnapshotRef("task/of-mine")):
        (again,) = await other.restore(found, SandboxSpec(files={"on/top": b"t"}))
        assert not isinstance(again, SandboxError)
        assert (await again.run("cat a.py d/c on/top; ls d")).out == b"2\nctc\n"
    await other.close()


async def test_eight_restored_with_one_failure_are_seven_and_an_error(
    pool: LocalPool, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test 20 of docs/sandbox.md."""
    ref = await box.snapshot()
    births, made = pool._factory._create_sandbox, iter(range(8))

    async def backend_handle(spec, base, *, key):
        if next(made) == 3:
            raise CapacityExhausted("injected")
        return await births(spec, base, key=key)

    monkeypatch.setattr(pool._factory, "_create_sandbox", backend_handle)
    found = await pool.restore(ref, SandboxSpec(disk_mb=4), 8)
    faults = [one for one in found if isinstance(one, SandboxError)]
    assert [type(one) for one in faults] == [CapacityExhausted] and found[3] is faults[0]
    living = [one for one in found if not isinstance(one, SandboxError)]
    assert [(await one.read("a.py")) for one in living] == [b"a = 1\n"] * 7
    await _end(*living)


async def test_nothing_is_copied_when_nothing_has_changed(box: Sandbox) -> None:
    ref = await box.snapshot()
    (child,) = await _children(box, 1)
    assert await child.snapshot() == ref
    await child.run("cat a.py; ls -R")
    assert await child.snapshot() == ref
    await _end(child)


async def test_a_layer_below_a_living_sandbox_is_never_collected(layers: str, box: Sandbox) -> None:
    """Test 22 of docs/sandbox.md: the collection is another's, without patience."""
    (child,) = await _children(box, 1)
    (grandchild,) = await _children(child, 1)
    await box.kill()
    await child.kill()
    with LayerStore(Path(layers)) as other:
        collect(other, patience_s=0)
        before = len(list(other.layers.iterdir()))
        assert (await grandchild.run("cat a.py d/b")).out == b"a = 1\nb"
        await grandchild.kill()
        assert before >= 1


async def test_a_damaged_layer_is_an_error_and_no_sandbox(layers: str, pool: LocalPool, box: Sandbox) -> None:
    """Test 21 of docs/sandbox.md: never wrong files."""
    ref = await box.snapshot()
    with open_store(layers) as store:
        (folder,) = store.hold(ref.digest).folders
    status = (folder / "work/a.py").stat()
    (folder / "work/a.py").write_bytes(b"a = 2\n")
    other = await open_pool(SandboxSettings(backend="local", layers=layers))
    try:
        with pytest.raises(LayerCorrupt, match="work/a.py is not what was written"):
            await other.restore(ref, SandboxSpec())
    finally:
        await other.close()
        (folder / "work/a.py").write_bytes(b"a = 1\n")
        os.utime(folder / "work/a.py", ns=(status.st_atime_ns, status.st_mtime_ns))


async def test_changes_are_reported_since_birth_and_since_a_snapshot(box: Sandbox) -> None:
    assert await box.diff() == []
    await box.run("echo 2 > a.py; rm d/b; echo n > new; mkdir empty; touch d/c; echo t > /tmp/t")
    changed = [FileChange("work/a.py", "changed"), FileChange("work/d/b", "removed"), FileChange("work/new", "added")]
    assert await box.diff() == [FileChange("tmp/t", "added"), *changed]
    ref = await box.snapshot()
    assert await box.diff(ref) == []
    await box.run("rm new; echo b > d/b")
    assert await box.diff(ref) == [FileChange("work/d/b", "added"), FileChange("work/new", "removed")]


async def test_what_can_not_be_is_said_and_changes_nothing(pool: LocalPool, box: Sandbox) -> None:
    with pytest.raises(Unsupported, match="gvisor"):
        await box.fork(1, memory=True)
    if pool.probe().uid_ranges:
        ranged = await pool.create(SandboxSpec(uid_mode="range"))
        with pytest.raises(Unsupported, match="one owner"):
            await ranged.fork(1)
        await ranged.kill()
    with pytest.raises(UserError, match="fork of 0 children"):
        await box.fork(0)
    with pytest.raises(UserError, match="can't be a snapshot's name"):
        await box.snapshot("no good")
    with pytest.raises(UserError, match="no snapshot or image 'never'"):
        await pool.restore(SnapshotRef("never"), SPEC)
    with pytest.raises(UserError, match="no snapshot or image"):
        await pool.create(SandboxSpec(image="never", warm_python=False))
    assert (await box.run("cat a.py")).out == b"a = 1\n"


async def test_a_fork_next_to_a_kill_ends_in_children_or_in_an_error_that_says_so(pool: LocalPool) -> None:
    """Test 16 of docs/sandbox.md: kill during fork and snapshot; nothing hangs and nothing is left."""
    for delay_s in (0, 0.002, 0.01, 0.03):
        box = await pool.create(SPEC)
        forking, taking = asyncio.ensure_future(box.fork(2)), asyncio.ensure_future(box.snapshot())
        await asyncio.sleep(delay_s)
        await box.kill()
        await box.kill()
        for found in await asyncio.gather(forking, taking, return_exceptions=True):
            assert isinstance(found, (list, SnapshotRef, SandboxNotFound)), found
            if isinstance(found, list):
                await _end(*(one for one in found if not isinstance(one, SandboxError)))
    assert not [one for one in pool.list() if one.state != "dead" and one.spec is SPEC]


async def test_a_caller_that_gives_up_leaves_no_child_and_a_parent_that_goes_on(pool: LocalPool, box: Sandbox) -> None:
    before = {one.id for one in pool.list()}
    for delay_s in (0.001, 0.008, 0.02):
        forking = asyncio.ensure_future(box.fork(3))
        await asyncio.sleep(delay_s)
        forking.cancel()
        found = (await asyncio.gather(forking, return_exceptions=True))[0]
        if isinstance(found, list):
            await _end(*(one for one in found if not isinstance(one, SandboxError)))
    assert {one.id for one in pool.list()} == before
    assert (await box.run("echo on; sleep 0.01; echo and on")).out == b"on\nand on\n"


async def test_a_hole_in_a_file_stays_one(box: Sandbox) -> None:
    await box.run("truncate -s 8M sparse")
    (child,) = await _children(box, 1)
    shown = await child.run("stat -c '%s %b' sparse")
    assert shown.out.startswith(b"8388608 ") and int(shown.out.split()[1]) < 64
    await child.kill()


async def test_programs_that_start_all_the_time_are_caught_standing_still(box: Sandbox) -> None:
    """A shell waits in vfork, where no signal reaches it, until its child has become a program."""
    starting = asyncio.ensure_future(box.run("while test ! -e end; do /bin/true; echo x >> log; done", timeout_s=60))
    await asyncio.sleep(0.1)
    refs = [await box.snapshot() for _ in range(15)]
    assert len({ref.digest for ref in refs}) > 1
    await box.write("end", b"")
    assert (await starting).rc == 0


async def test_no_one_can_resume_a_sandbox_in_the_middle_of_its_snapshot(
    pool: LocalPool, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test 17 of docs/sandbox.md: a caller that pauses and resumes it meanwhile waits; the writer is paused while files are copied."""
    writer = await box.exec("while :; do echo x >> grows; done")
    copying, may_go_on, sizes = asyncio.Event(), threading.Event(), []
    loop, ingest = asyncio.get_running_loop(), LayerStore.ingest

    def slow(store: LayerStore, upper: int, *rest: Any, **more: Any) -> Any:
        sizes.append(os.stat("work/grows", dir_fd=upper).st_size)
        loop.call_soon_threadsafe(copying.set)
        assert may_go_on.wait(20)
        sizes.append(os.stat("work/grows", dir_fd=upper).st_size)
        return ingest(store, upper, *rest, **more)

    while not await box.list():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    monkeypatch.setattr(LayerStore, "ingest", slow)
    taken = asyncio.ensure_future(box.snapshot())
    await copying.wait()
    pausing = asyncio.ensure_future(box.pause())
    await asyncio.sleep(0.1)
    resuming = asyncio.ensure_future(box.resume())
    await asyncio.sleep(0.2)
    may_go_on.set()
    await asyncio.gather(taken, pausing, resuming)
    assert sizes[0] == sizes[1] and box.state == "running"
    await writer.signal(9)


async def test_a_sandbox_that_dies_as_its_snapshot_is_made_holds_no_layer(
    pool: LocalPool, box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test 16 of docs/sandbox.md."""
    await box.write("fresh", os.urandom(8))
    loop, ingest, made = asyncio.get_running_loop(), LayerStore.ingest, []

    def fatal(store: LayerStore, *rest: Any, **more: Any) -> Any:
        made.append((store, ingest(store, *rest, **more).snapshot.digest))
        asyncio.run_coroutine_threadsafe(box.kill(), loop).result()
        return PinnedSnapshot(store, store.resolve(made[0][1]))

    monkeypatch.setattr(LayerStore, "ingest", fatal)
    with pytest.raises(SandboxNotFound):
        await box.snapshot()
    ((store, digest),) = made
    assert not store.lease.holds(digest)


async def test_a_spec_starts_from_a_snapshot_by_name_with_its_own_files_on_top(pool: LocalPool, box: Sandbox) -> None:
    await box.run("echo installed > /tmp/deps")
    await box.snapshot("env-by-name")
    made = await pool.create(SandboxSpec(snapshot="env-by-name", files={"a.py": b"a = 2\n"}))
    shown = await made.run("cat a.py d/b /tmp/deps")
    assert shown.out == b"a = 2\nbinstalled\n"
    assert not [one for one in await made.diff() if one.path not in ("work/a.py", "work")]
    await made.kill()
    with pytest.raises(UserError, match="env-nowhere"):
        await pool.create(SandboxSpec(snapshot="env-nowhere"))
    with pytest.raises(UserError, match="name one"):
        await pool.create(SandboxSpec(snapshot="env-by-name", image="python", warm_python=False))
