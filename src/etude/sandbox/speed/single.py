"""One at a time: a fork and exec of the host, a birth, a command, a death, a stream."""

from __future__ import annotations

import asyncio
import os
import time

from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.spec import SandboxSpec

STREAM_BYTES = 128 << 20
SPEC = SandboxSpec(warm_python=False)
WARM = SandboxSpec(files={"module.py": b"def f(x):\n    return x + 1\n"})
PROGRAM = ["python", "-c", "import module; print(module.f(1))"]


async def fork_exec() -> None:
    """The floor: what this machine takes to start `true` without any wall."""
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


class SingleSandboxBenchmark:
    """Measures on one pool; `box` lives all along, and so does `warm_box`, which has an interpreter."""

    def __init__(self, pool: SandboxPool, box: Sandbox, warm_box: Sandbox | None = None) -> None:
        self._pool, self._box, self._warm_box = pool, box, warm_box
        self._dying: list[Sandbox] = []

    async def create(self) -> None:
        """From nothing to the end of its first command."""
        made = await self._pool.create(SPEC)
        self._dying.append(made)
        await made.run(["true"])

    async def kill(self) -> float:
        """From the call until every process is gone; two of them are busy."""
        made = self._dying.pop()
        await made.run("sleep 60 & sleep 60 &")
        start = time.perf_counter()
        await made.kill()
        return time.perf_counter() - start

    async def exec(self) -> None:
        await self._box.run(["true"])

    async def warm(self) -> None:
        """A small Python program by a fork of the interpreter that is there."""
        assert self._warm_box is not None, "give a box made of WARM"
        done = await self._warm_box.run(PROGRAM, warm=True)
        if done.out != b"2\n":
            raise RuntimeError(f"the program said {done.out!r} {done.err!r}")

    async def stream_mb_s(self) -> float:
        """Megabytes (10^6) of stdout a second, into this process."""
        process = await self._box.exec(["head", "-c", str(STREAM_BYTES), "/dev/zero"], timeout_s=120)
        start, taken = time.perf_counter(), 0
        async for chunk in process.stream():
            taken += len(chunk.data)
        spent_s = time.perf_counter() - start
        if taken != STREAM_BYTES:
            raise RuntimeError(f"the stream brought {taken} of {STREAM_BYTES} bytes")
        await process.wait()
        return taken / 1e6 / spent_s


async def many_live(pool: SandboxPool, live: int, at_once: int = 8) -> tuple[list[Sandbox], float]:
    """Make `live` sandboxes, `at_once` in flight; all of them, and creates a second."""
    places = asyncio.Semaphore(at_once)

    async def one() -> Sandbox:
        async with places:
            return await pool.create(SPEC)

    start = time.perf_counter()
    made = await asyncio.gather(*(one() for _ in range(live)))
    return made, live / (time.perf_counter() - start)


async def exec_per_s(boxes: list[Sandbox], commands: int, at_once: int = 16) -> float:
    """Commands a second over all of them in turn."""
    places = asyncio.Semaphore(at_once)

    async def one(box: Sandbox) -> None:
        async with places:
            done = await box.run(["true"])
            if done.rc != 0:
                raise RuntimeError(f"true ended with {done.rc}: {done.err!r}")

    start = time.perf_counter()
    await asyncio.gather(*(one(boxes[number % len(boxes)]) for number in range(commands)))
    return commands / (time.perf_counter() - start)


def available_mib() -> float:
    """Memory that this machine could still give: user and kernel, so that a difference counts both."""
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 1024
