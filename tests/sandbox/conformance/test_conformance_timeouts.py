"""A time-out ends the command's whole tree, and nothing else; no signal from inside ends the runner."""

from __future__ import annotations

import asyncio
import time

import pytest
from makers import MadePool

from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAEMON = "(setsid sh -c 'setsid sleep 1000 & setsid sleep 1000' >/dev/null 2>&1 &) ; sleep 1000"


async def _sleepers(box: Sandbox) -> int:
    found = await box.run("cat /proc/[0-9]*/comm | grep -c '^sleep'")
    return int(found.out)


@pytest.mark.parametrize("warm", [False, True])
async def test_looping_code_is_cut_by_time(box: Sandbox, warm: bool) -> None:
    """Test 3 of docs/sandbox.md."""
    started = time.monotonic()
    result = await box.run(["python", "-c", "print('x', flush=True)\nwhile True: pass"], timeout_s=0.5, warm=warm)
    assert result.timed_out and result.signal == 9 and result.rc == 137 and result.out == b"x\n"
    assert time.monotonic() - started < 5
    assert (await box.run(["cat", "hello.txt"])).out == b"hello\n"


async def test_double_forked_daemons_die_with_their_command(box: Sandbox) -> None:
    """Test 4 of docs/sandbox.md."""
    assert (await box.run(DAEMON, timeout_s=0.3)).timed_out
    assert await _sleepers(box) == 0


async def test_daemons_of_an_overlapping_command_die_alone(box: Sandbox) -> None:
    """Test 4 of docs/sandbox.md."""
    innocent = asyncio.create_task(box.run("sleep 1.5; echo fine", timeout_s=30))
    await asyncio.sleep(0.05)
    assert (await box.run(DAEMON, timeout_s=0.3)).timed_out  # under a supervisor, because another one runs
    assert await _sleepers(box) == 1
    result = await innocent
    assert (result.rc, result.out) == (0, b"fine\n")


async def test_the_first_of_two_commands_can_time_out_too(box: Sandbox) -> None:
    first = asyncio.create_task(box.run(DAEMON, timeout_s=0.4))
    await asyncio.sleep(0.1)
    second = await asyncio.gather(first, box.run("sleep 1; echo fine", timeout_s=30))
    assert second[0].timed_out and second[1].out == b"fine\n"
    assert await _sleepers(box) == 0


async def test_a_server_left_by_an_earlier_command_survives_a_later_time_out(box: Sandbox) -> None:
    await box.run("setsid sleep 777 >/dev/null 2>&1 &")
    assert (await box.run(DAEMON, timeout_s=0.3)).timed_out
    assert await _sleepers(box) == 1


async def test_a_cancelled_call_kills_its_command(box: Sandbox) -> None:
    call = asyncio.create_task(box.run("sleep 1000"))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await _sleepers(box) == 0


async def test_a_fork_bomb_is_bounded_and_cleared(pool: MadePool) -> None:
    box = await pool.create(SandboxSpec(pids=32))
    bomb = "import os, time\nwhile True:\n try: os.fork()\n except OSError: time.sleep(0.01)\n"
    assert (await box.run(["python", "-c", bomb], timeout_s=0.7)).timed_out
    after = await box.run("ls -d /proc/[0-9]* | wc -l")
    assert int(after.out) <= 5  # PID 1, its possible helpers, the shell, ls, wc
    await box.kill()


async def test_a_sleeper_is_cut_in_time_and_the_sandbox_is_usable_at_once(box: Sandbox) -> None:
    """Test 3 of docs/sandbox.md."""
    started = time.monotonic()
    result = await box.run("sleep 1000", timeout_s=0.3)
    assert result.timed_out and 0.3 <= result.duration_s < 1.3
    assert (await box.run("echo here")).out == b"here\n" and time.monotonic() - started < 10


async def test_the_runner_survives_every_signal_from_inside(box: Sandbox) -> None:
    """Test 14 of docs/sandbox.md."""
    for command in ("kill -9 1", "kill -TERM 1", "kill -STOP 1", "kill -9 -1", "kill -15 -1"):
        await box.run(command, timeout_s=5)
        assert (await box.run("echo alive")).out == b"alive\n", command
