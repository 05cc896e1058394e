"""Programs that take all they can get: processes, memory, disk, processor time. It ends inside, is reported by its name, and neighbours go on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest

from etude.sandbox.errors import DiskFull, PidsExhausted, SandboxError, Unsupported, UserError
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PATIENCE_S = 30.0
BOMB = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.1)"


@pytest.mark.parametrize("warm_python", [True, False])
async def test_a_fork_bomb_is_bounded_and_reported_and_neighbours_go_on(pool: SandboxPool, warm_python: bool) -> None:
    """Test 38 of docs/sandbox.md. Its bound on neighbours' times is the bench's business: here they must merely be served."""
    box = await pool.create(SandboxSpec(pids=16, warm_python=warm_python))
    neighbour = await pool.create(SandboxSpec(disk_mb=1))
    bomb = asyncio.create_task(box.run(["python3", "-c", BOMB], timeout_s=_PATIENCE_S))
    report = False
    end_s = time.monotonic() + _PATIENCE_S
    while not report and time.monotonic() < end_s:
        try:
            await box.run(["true"])
        except PidsExhausted:
            report = True
        assert (await neighbour.run(["echo", "here"], timeout_s=_PATIENCE_S)).out == b"here\n"
    assert report
    await asyncio.gather(box.kill(), neighbour.kill())
    with contextlib.suppress(SandboxError):
        await bomb


@pytest.mark.parametrize("warm_python", [True, False])
async def test_hogs_of_memory_die_inside_and_the_runner_lives(pool: SandboxPool, warm_python: bool) -> None:
    """Test 39 of docs/sandbox.md: many small processes at once, so that the runner is the largest of all."""
    box = await pool.create(SandboxSpec(memory_mb=64, disk_mb=1, warm_python=warm_python))
    hog = (
        "import os, time\nreader, writer = os.pipe()\n"
        "for _ in range(24):\n if os.fork() == 0:\n"
        "  os.close(writer); os.read(reader, 1); x = b'x' * (8 << 20); time.sleep(20); os._exit(0)\n"
        "os.close(reader); os.close(writer); os.wait(); time.sleep(0.2)"
    )
    result = await box.run(["python3", "-c", hog], timeout_s=_PATIENCE_S)
    assert result.oom and not result.timed_out, result
    alive = await box.run(["echo", "here"])
    assert alive.out == b"here\n"
    await box.kill()


@pytest.mark.parametrize("warm_python", [True, False])
async def test_commands_are_offered_to_the_kernel_before_their_runner(pool: SandboxPool, warm_python: bool) -> None:
    """Test 39 of docs/sandbox.md: alone, with another command, and the runner itself never but for the moment in which it starts one."""
    box = await pool.create(SandboxSpec(disk_mb=1, warm_python=warm_python))
    runner = (
        "for i in $(seq 100); do read it < /proc/1/oom_score_adj; [ $it -lt 500 ] && break; sleep 0.1; done; echo $it"
    )
    ask = f"sleep 0.2; cat /proc/self/oom_score_adj; {runner}"
    for said in await asyncio.gather(box.run(ask), box.run(ask)):
        command, its_runner = map(int, said.out.split())
        assert command >= 500 > its_runner
    await box.kill()


async def test_the_host_s_disk_does_not_see_what_fills_the_sandbox(pool: SandboxPool) -> None:
    """Test 40 of docs/sandbox.md: bytes and inodes; the free space of the host's file systems stays, but for what others write."""
    box = await pool.create(SandboxSpec(disk_mb=8))
    before = {path: _free(path) for path in ("/", "/tmp", "/dev/shm") if os.path.isdir(path)}
    filled = await box.run(
        "head -c 200000000 /dev/zero > big; head -c 200000000 /dev/zero > /tmp/big; ls -l big | wc -l"
    )
    assert filled.err.count(b"No space left") + filled.err.count(b"File too large") == 2, filled
    assert all(_free(path) > free - (100 << 20) for path, free in before.items())
    with pytest.raises(DiskFull):
        await box.write("more", b"x" * (9 << 20))
    emptied = await box.run("rm big; echo 1 > small; cat small")
    assert emptied.out == b"1\n", emptied
    await box.kill()


async def test_four_hogs_of_the_processor_get_the_share_of_the_spec(pool: SandboxPool) -> None:
    """Test 41 of docs/sandbox.md: 0.5 of a core, 0.1 up or down; a loaded machine may give less, never more."""
    if not pool.probe().cpus:
        pytest.skip(f"processor time can't be bounded here: {pool.probe().limits}")
    box, other = await asyncio.gather(
        pool.create(SandboxSpec(cpus=0.5, disk_mb=1)), pool.create(SandboxSpec(disk_mb=1))
    )
    spin = "import os, time\nfor _ in range(2): os.fork()\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end: pass\n"
    measure = "print(time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID), time.monotonic() - end + 1.5, flush=True)"
    spinning = asyncio.create_task(box.run(["python3", "-c", spin + measure], timeout_s=_PATIENCE_S))
    while not spinning.done():
        assert (await other.run(["true"], timeout_s=_PATIENCE_S)).rc == 0
        await asyncio.sleep(0.1)
    lines = [line.split() for line in (await spinning).out.splitlines()]
    share = sum(float(line[0]) for line in lines) / max(float(line[1]) for line in lines)
    assert len(lines) == 4 and 0.02 < share < 0.6, share
    await asyncio.gather(box.kill(), other.kill())


async def test_a_share_that_can_not_be_given_is_refused(pool: SandboxPool, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus in (0.0, -1.0, 0.001, float("inf"), float("nan")):
        with pytest.raises(UserError, match="cpus"):
            await pool.create(SandboxSpec(cpus=cpus))
    monkeypatch.setattr(ControlGroups, "cpus", False)
    with pytest.raises(Unsupported, match=r"cpus=0\.5.*control group.*leave cpus out"):
        await pool.create(SandboxSpec(cpus=0.5))


async def test_range_of_users_where_only_one_can_be_given_is_refused(pool: SandboxPool, box: Sandbox) -> None:
    if pool.probe().uid_ranges:
        pytest.skip("this back end can give a range here")
    with pytest.raises(Unsupported, match="uid_mode='range'"):
        await pool.create(SandboxSpec(uid_mode="range"))


def _free(path: str) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize
