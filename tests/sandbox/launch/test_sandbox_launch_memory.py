"""Back end `gvisor`: copies of a whole sandbox, memory and all. Skipped, with the reason, where there is no runsc or it can't copy."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from etude.sandbox.errors import InfraError, SandboxDied, SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.launch.experimental.gvisor import GvisorRuntime
from etude.sandbox.launch.launcher import LaunchCommand
from etude.sandbox.local_pool import LocalPool
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec, SnapshotRef

pytestmark = pytest.mark.asyncio(loop_scope="module")

_COUNTER = (
    "(i=0; while :; do i=$((i+1)); echo $i >/tmp/new; mv /tmp/new /tmp/count; sleep 0.05; done) >/dev/null 2>&1 &"
)
_MOVES = "a=$(cat /tmp/count); sleep 0.5; b=$(cat /tmp/count); [ $b -gt $a ] && echo on || echo off"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[LocalPool]:
    try:
        made = await open_pool(SandboxSettings(backend="gvisor"))
    except Unsupported as error:
        pytest.skip(str(error))
    assert isinstance(made, LocalPool)
    if not made.probe().memory_snapshots:
        await made.close()
        pytest.skip("this runsc can't restore what it wrote")
    yield made
    await made.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def parent(pool: LocalPool) -> AsyncIterator[Sandbox]:
    """One that counts, on and on."""
    made = await pool.create(SandboxSpec(files={"hello.txt": b"hello\n"}, labels={"a": "parent"}))
    await made.run(_COUNTER)
    await made.run(["sh", "-c", "while ! [ -e /tmp/count ]; do sleep 0.05; done"])
    yield made
    await made.kill()


def _alive(found: list[Sandbox | SandboxError]) -> list[Sandbox]:
    for one in found:
        assert not isinstance(one, SandboxError), one
    return [one for one in found if not isinstance(one, SandboxError)]


def _images(pool: LocalPool) -> list[Path]:
    gvisor = pool._backend._runtime  # type: ignore[attr-defined]
    return [*gvisor._folder.glob("memory-*")]


async def test_processes_go_on_in_parent_and_children_each_on_its_own(pool: LocalPool, parent: Sandbox) -> None:
    children = _alive(await parent.fork(2, memory=True))
    everyone = [parent, *children]
    assert len({one.id for one in everyone}) == 3
    for number, one in enumerate(everyone):
        await one.write("own", b"%d" % number)
    assert [await one.read("own") for one in everyone] == [b"0", b"1", b"2"]
    assert [await one.read("hello.txt") for one in everyone] == [b"hello\n"] * 3
    for one in everyone:
        assert (await one.run(_MOVES)).out == b"on\n"
    assert {one.id for one in pool.list({"a": "parent"})} >= {one.id for one in everyone}
    assert not _images(pool)
    for one in children:
        await one.kill()
    assert (await parent.run("echo still here")).out == b"still here\n"


async def test_time_outs_streams_and_warm_runs_work_in_a_copy(parent: Sandbox) -> None:
    (child,) = _alive(await parent.fork(1, memory=True))
    for one in (child, parent):
        late = await one.run("sleep 1000", timeout_s=0.3)
        assert late.timed_out and late.signal == 9 and late.duration_s < 5
        assert (await one.run(["python", "-c", "print(6 * 7)"], warm=True)).out == b"42\n"
        process = await one.exec(["cat"], stdin=None)
        await process.write(b"through")
        await process.close_stdin()
        assert (await process.wait()).out == b"through"
        assert (await one.run(_MOVES)).out == b"on\n"  # a time-out costs no other process
    await child.kill()


async def test_commands_at_once_and_much_stdin_work(parent: Sandbox) -> None:
    """Tests 8 and 9 of docs/sandbox.md, as far as this kernel goes."""
    done = await asyncio.gather(*(parent.run(f"sleep 0.2; echo {number}") for number in range(6)))
    assert [one.out for one in done] == [b"%d\n" % number for number in range(6)]
    late, early = await asyncio.gather(parent.run("sleep 1000", timeout_s=0.3), parent.run("sleep 0.6; echo on"))
    assert late.timed_out and early.out == b"on\n"
    assert (await parent.run(["wc", "-c"], stdin=bytes(1_000_000))).out == b"1000000\n"


async def test_a_fork_without_memory_has_the_files_alone(parent: Sandbox) -> None:
    (child,) = _alive(await parent.fork(1))
    assert await child.read("hello.txt") == b"hello\n"
    assert (await child.run(_MOVES)).out == b"off\n"
    assert (await parent.run(_MOVES)).out == b"on\n"
    await child.kill()


async def test_a_snapshot_is_restored_many_times_and_what_differs_comes_on_top(
    pool: LocalPool, parent: Sandbox
) -> None:
    ref = await parent.snapshot("turn", memory=True)
    await parent.write("hello.txt", b"later")
    spec = dataclasses.replace(parent.spec, files={"new": b"n"}, labels={"a": "copy"})
    copies = _alive(await pool.restore(ref, spec, 2))
    for one in copies:
        assert (await one.read("hello.txt"), await one.read("new")) == (b"hello\n", b"n")
        assert (await one.run(_MOVES)).out == b"on\n"
        await one.kill()
    await parent.write("hello.txt", b"hello\n")
    with pytest.raises(UserError, match="only files, labels"):
        await pool.restore(ref, dataclasses.replace(spec, memory_mb=600))
    with pytest.raises(UserError, match="no snapshot 'memory-x'"):
        await pool.restore(SnapshotRef("memory-x"), spec)


async def test_a_command_under_way_is_refused_and_not_harmed(parent: Sandbox) -> None:
    process = await parent.exec(["cat"], stdin=None)
    with pytest.raises(UserError, match="under way"):
        await parent.fork(1, memory=True)
    await process.close_stdin()
    assert (await process.wait()).rc == 0
    await parent.pause()
    with pytest.raises(UserError, match="resume it first"):
        await parent.snapshot(memory=True)
    await parent.resume()
    with pytest.raises(UserError, match="0 copies"):
        await parent.fork(0, memory=True)
    with pytest.raises(Unsupported, match="diff"):
        await parent.diff()


async def test_requests_wait_while_it_is_in_no_process(parent: Sandbox) -> None:
    forking = asyncio.ensure_future(parent.snapshot(memory=True))
    await asyncio.sleep(0.02)
    assert (await parent.run("echo waited")).out == b"waited\n"
    assert await parent.read("hello.txt") == b"hello\n"
    await forking


async def test_a_copy_that_is_not_waited_for_leaves_its_sandbox_whole(pool: LocalPool, parent: Sandbox) -> None:
    before = {one.id for one in pool.list()}
    forking = asyncio.ensure_future(parent.fork(1, memory=True))
    await asyncio.sleep(0.05)
    forking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await forking
    assert (await parent.run("echo here")).out == b"here\n"
    assert {one.id for one in pool.list()} == before


async def test_each_child_fails_on_its_own(pool: LocalPool, parent: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test 20 of docs/sandbox.md, with memory."""
    restore_memory, asked = GvisorRuntime.restore_memory, iter(range(10))

    def failing(self: GvisorRuntime, spec: SandboxSpec, kept: Path) -> LaunchCommand:
        launch = restore_memory(self, spec, kept)
        if spec is not parent.spec and next(asked) == 1:
            launch.argv[-1:] = ["no/name"]
        return launch

    monkeypatch.setattr(GvisorRuntime, "restore_memory", failing)
    children = await parent.fork(3, memory=True)
    assert sorted(type(one).__name__ for one in children) == ["LiveSandbox", "LiveSandbox", "SandboxDied"]
    for one in children:
        if isinstance(one, SandboxDied):
            assert "back end gvisor" in str(one)
        elif not isinstance(one, SandboxError):
            assert (await one.run("echo 1")).out == b"1\n"
            await one.kill()
    assert (await parent.run("echo 2")).out == b"2\n"


async def test_a_copy_that_fails_leaves_the_parent_or_says_that_it_died(
    pool: LocalPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await pool.create(SandboxSpec())

    def fail(self: GvisorRuntime, name: str) -> Path:
        raise InfraError("runsc checkpoint ended with 1: no")

    with monkeypatch.context() as patched:
        patched.setattr(GvisorRuntime, "keep", fail)
        with pytest.raises(SandboxError, match="ended with 1"):
            await one.fork(1, memory=True)
    assert (await one.run("echo 1")).out == b"1\n"

    def lose(self: GvisorRuntime, spec: SandboxSpec, kept: Path) -> object:
        raise Unsupported("no more")

    with monkeypatch.context() as patched:
        patched.setattr(GvisorRuntime, "restore_memory", lose)
        with pytest.raises(SandboxDied, match="did not go on"):
            await one.snapshot(memory=True)
    with pytest.raises(SandboxNotFound, match="did not go on"):
        await one.run("echo 1")
    assert one.state == "dead"
    await one.kill()


async def test_a_kill_in_the_midst_of_it_is_the_end_of_it(pool: LocalPool) -> None:
    """Test 16 of docs/sandbox.md, with memory."""
    one = await pool.create(SandboxSpec(labels={"b": "doomed"}))
    forking = asyncio.ensure_future(one.fork(1, memory=True))
    await asyncio.sleep(0.05)
    await one.kill()
    with pytest.raises(SandboxNotFound, match="was killed"):
        await forking
    assert pool.list({"b": "doomed"}) == []
