"""How fast sandboxes are: medians of interleaved runs, as times and as ratios to a fork and exec of `true` on the same machine.

    python benchmarks/sandbox_speed.py [--rounds 100] [--json]

Foreign load moves every figure by the same factor, so compare ratios. CPU is of this process and all it started, where the machine
has a cpuacct cgroup that this user may make; else it is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import json
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

FILES = {f"module_{i}.py": b"def f(x):\n    return x + 1\n" for i in range(4)}
PROGRAM = ["python", "-c", "import module_1; print(module_1.f(1))"]
TARGETS_MS = {
    "create_run_destroy": 15.0,
    "warm_python": 4.0,
    "exec_true": 3.0,
    "read": 0.5,
    "write": 0.5,
    "export": 0.5,
}
Action = Callable[[], Awaitable[object]]


class CpuClock:
    """CPU milliseconds of everything below this process, from a cgroup of its own; None where there is none."""

    def __init__(self) -> None:
        folder = Path(f"/sys/fs/cgroup/cpuacct/etude-speed-{os.getpid()}")
        self._usage = folder / "cpuacct.usage"
        try:
            folder.mkdir()
            (folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            self._usage = None
            return
        atexit.register(self._leave, folder)

    @staticmethod
    def _leave(folder: Path) -> None:
        (folder.parent / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()

    def ms(self) -> float | None:
        return int(self._usage.read_text()) / 1e6 if self._usage else None


def actions(pool: SandboxPool, box: Sandbox) -> dict[str, Action]:
    async def baseline() -> None:
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)

    async def create_run_destroy() -> None:
        made = await pool.create(SandboxSpec(files=FILES))
        await made.run(["true"])
        await made.kill()

    async def create_destroy() -> None:
        await (await pool.create(SandboxSpec(files=FILES))).kill()

    return {
        "baseline": baseline,
        "create_run_destroy": create_run_destroy,
        "create_destroy": create_destroy,
        "exec_true": lambda: box.run(["true"]),
        "warm_python": lambda: box.run(PROGRAM, warm=True),
        "cold_python": lambda: box.run(PROGRAM),
        "write": lambda: box.write("x", b"x" * 1000),
        "read": lambda: box.read("x"),
        "export": lambda: box.export(),
    }


async def measure(rounds: int) -> dict[str, dict[str, float]]:
    clock = CpuClock()
    pool = await open_pool(SandboxSettings())
    box = await pool.create(SandboxSpec(files=FILES))
    walls: dict[str, list[float]] = {}
    cpus: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, action in actions(pool, box).items():
            cpu, start = clock.ms(), time.perf_counter()
            await action()
            walls.setdefault(name, []).append(1e3 * (time.perf_counter() - start))
            if cpu is not None:
                await asyncio.sleep(0.003)  # the end of the dead is charged a little later
                cpus.setdefault(name, []).append((clock.ms() or cpu) - cpu)
    await pool.close()
    unit = statistics.median(walls["baseline"])
    found: dict[str, dict[str, float]] = {}
    for name, values in walls.items():
        median = statistics.median(values)
        found[name] = {
            "wall_ms": median,
            "min_ms": min(values),
            "p99_ms": sorted(values)[int(0.99 * (len(values) - 1))],
            "ratio": median / unit,
        }
        if name in cpus:
            found[name]["cpu_ms"] = statistics.median(cpus[name])
    return {name: {key: round(value, 3) for key, value in row.items()} for name, row in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = asyncio.run(measure(options.rounds))
    if options.json:
        print(
            json.dumps(
                {"kernel": platform.release(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "speed": found}
            )
        )
        return
    for name, row in found.items():
        target = f"  target {TARGETS_MS[name]:g} ms" if name in TARGETS_MS else ""
        print(f"{name:20s}" + "".join(f"  {key} {value:8.2f}" for key, value in row.items()) + target)


if __name__ == "__main__":
    main()
