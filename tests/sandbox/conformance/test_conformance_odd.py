"""What makes no sense is the caller's error, and costs no sandbox: no number and no name that a caller can give ends a runner."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from makers import MadePool

from etude.sandbox.errors import OutputLimit, UserError
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec, TerminalSize

pytestmark = pytest.mark.asyncio(loop_scope="module")

Ask = Callable[[Sandbox], Awaitable[object]]
HUGE = 1 << 70

ODD: dict[str, Ask] = {
    **{
        f"run for {time} s": lambda box, time=time: box.run(["true"], timeout_s=time)
        for time in (math.nan, math.inf, 1e300)
    },
    **{
        f"exec for {time} s": lambda box, time=time: box.exec(["true"], timeout_s=time) for time in (math.nan, math.inf)
    },
    "run with half a byte": lambda box: box.run(["true"], max_output_bytes=1.5),  # type: ignore[arg-type]
    "run with all the bytes": lambda box: box.run(["true"], max_output_bytes=HUGE),
    "exec on a large terminal": lambda box: box.exec(["true"], tty=TerminalSize(1 << 16, 80)),
    "exec on a negative terminal": lambda box: box.exec(["true"], tty=TerminalSize(24, -1)),
    "read from before": lambda box: box.read("hello.txt", offset=-1),
    "read from beyond": lambda box: box.read("hello.txt", offset=HUGE),
    "read less than nothing": lambda box: box.read("hello.txt", max_bytes=-1),
    "read all there is": lambda box: box.read("hello.txt", max_bytes=HUGE),
    "write with no mode": lambda box: box.write("odd", b"", mode=-1),
    "list nothing": lambda box: box.list(max_entries=-1),
    "list all": lambda box: box.list(max_entries=HUGE),
    "export nothing": lambda box: box.export(max_bytes=-1),
    "export all": lambda box: box.export(max_bytes=HUGE),
    "get nothing": lambda box: box.get_tar(max_bytes=-1),
    "get all": lambda box: box.get_tar(max_bytes=HUGE),
    "connect to a name": lambda box: box.connect("http"),  # type: ignore[arg-type]
    "connect to no port": lambda box: box.connect(HUGE),
}


@pytest.mark.sample(32)
@pytest.mark.parametrize("odd", ODD)
async def test_a_number_that_makes_no_sense_is_refused_and_the_sandbox_lives_on(box: Sandbox, odd: str) -> None:
    with pytest.raises(UserError):
        await ODD[odd](box)
    assert (await box.run(["true"])).rc == 0


async def test_an_answer_that_no_frame_holds_is_an_output_limit_and_the_sandbox_lives_on(box: Sandbox) -> None:
    with pytest.raises(OutputLimit):
        await box.run("head -c 70000000 /dev/zero", max_output_bytes=80_000_000, timeout_s=60)
    assert (await box.run(["true"])).rc == 0


@pytest.mark.parametrize(
    "demand",
    [
        {"memory_mb": 0}, {"memory_mb": 1.5}, {"memory_mb": 1 << 50}, {"pids": 0}, {"pids": -1}, {"pids": 1 << 50},
        {"disk_mb": 0}, {"disk_mb": -1}, {"disk_mb": 1 << 50},
        {"env": {"": "x"}}, {"env": {"a=b": "x"}}, {"env": {"a": "\0"}}, {"env": {"a": "\ud800"}},
        {"workdir": "/wo\0rk"}, {"workdir": "/wo\ud800rk"},
    ],
)  # fmt: skip
async def test_a_spec_that_makes_no_sense_is_refused_before_anything_is_made(
    pool: MadePool, demand: dict[str, Any]
) -> None:
    """No limit of 0: to the kernel that would be none at all."""
    with pytest.raises(UserError):
        await pool.create(dataclasses.replace(SandboxSpec(), **demand))
