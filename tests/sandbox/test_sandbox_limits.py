"""Memory, disk and inodes end inside; the host does not notice."""

from __future__ import annotations

import asyncio

import pytest

from etude.sandbox.errors import DiskFull
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "size_mb", [200, 2000]
)  # over the command's bound, and over the group's, which counts files too
@pytest.mark.parametrize("warm", [False, True])
async def test_a_memory_hog_fails_alone(pool: SandboxPool, warm: bool, size_mb: int) -> None:
    box = await pool.create(SandboxSpec(memory_mb=64))
    hog = f"x = b'x' * ({size_mb} << 20)\nimport time\ntime.sleep(60)"  # the watch looks every 100 ms
    result = await box.run(["python", "-c", hog], warm=warm)
    assert result.rc != 0 and (b"MemoryError" in result.err or result.oom)
    assert (await box.run(["true"])).rc == 0
    await box.kill()


async def test_memory_spread_over_processes_is_counted_together(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(memory_mb=96))
    code = "import os, time\nfor _ in range(4): os.fork()\nx = b'x' * (40 << 20)\ntime.sleep(5)"
    result = await box.run(["python", "-c", code], timeout_s=20)
    assert (
        result.oom or result.rc != 0
    )  # which of the sixteen die is the kernel's choice: the first may live to its end
    assert (await box.run(["true"])).rc == 0
    await box.kill()


async def test_what_a_command_left_behind_is_watched_while_nothing_runs(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(memory_mb=96))
    hog = "import time; time.sleep(0.3); x = b'x' * (70 << 20); time.sleep(20)"
    for _ in range(3):  # each alone is within bounds
        await box.run(f'python -c "{hog}" >/dev/null 2>&1 &')
    await asyncio.sleep(3)
    held = await box.run("grep -h RssAnon /proc/[0-9]*/status")
    assert sum(int(line.split()[1]) for line in held.out.splitlines()) < 96 << 10
    await box.kill()


async def test_the_disk_is_as_large_as_the_spec_says(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(disk_mb=4))
    result = await box.run(
        "for f in big /tmp/big; do head -c 9000000 /dev/zero > $f; wc -c < $f; rm $f; done; head -c 9000000 /dev/zero > big"
    )
    assert b"No space left" in result.err and result.out.split() == [b"4194304"] * 2
    with pytest.raises(DiskFull):
        await box.write("more", b"x" * 100_000)
    await box.remove("big")
    await box.write("more", b"x" * 100_000)
    assert [entry.path for entry in await box.list()] == ["more"]  # no half-written file was left
    await box.kill()


async def test_inodes_are_bounded(pool: SandboxPool) -> None:
    box = await pool.create(SandboxSpec(disk_mb=1))
    code = "n = 0\ntry:\n while True:\n  open(f'f{n}', 'w').close(); n += 1\nexcept OSError as error: print(n, error.errno)"
    result = await box.run(["python", "-c", code], warm=True)
    if pool.probe().backend == "local":
        count, errno = result.out.split()
        assert int(count) < 1024 and int(errno) == 28
    else:  # the launcher's file system has no such bound: it is watched
        assert result.signal == 9 and b"more than 256 files" in result.err
    await box.kill()


async def test_files_too_large_for_the_spec_make_no_sandbox(pool: SandboxPool) -> None:
    with pytest.raises(DiskFull):
        await pool.create(SandboxSpec(disk_mb=1, files={"big": b"x" * (2 << 20)}))


@pytest.mark.parametrize(
    "code",
    ["import os; os.memfd_create('x')", "import ctypes; assert ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600) >= 0"],
)
async def test_memory_no_one_counts_is_refused(box: Sandbox, code: str) -> None:
    assert (await box.run(["python", "-c", code], warm=True)).rc == 1


async def test_running_commands_are_bounded_apart_from_living_sandboxes(pool: SandboxPool) -> None:
    boxes = await asyncio.gather(*(pool.create(SandboxSpec(disk_mb=1)) for _ in range(12)))
    results = await asyncio.gather(*(one.run("sleep 0.05; echo 1") for one in boxes))
    assert [result.out for result in results] == [b"1\n"] * 12
    await asyncio.gather(*(one.kill() for one in boxes))
