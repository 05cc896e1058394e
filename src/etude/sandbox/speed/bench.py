"""The whole measurement, and what it is worth: keys as README and `benchmarks/results/sandbox.json` have them."""

from __future__ import annotations

import asyncio
import functools
import io
import math
import os
import platform
import shutil
import tarfile
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from etude.sandbox.errors import SandboxError
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.speed import peers
from etude.sandbox.speed.single import (
    SPEC,
    WARM,
    SingleSandboxBenchmark,
    available_mib,
    exec_per_s,
    fork_exec,
    many_live,
)

BUSY = 200  # sandboxes over which commands are spread
COMMANDS = 2000
_STREAMS = 3
_SLOW_ROUNDS = 8  # of the peers that take a third of a second each
Say = Callable[[str], None]


async def bench(settings: SandboxSettings, *, rounds: int, live: int, with_peers: bool, say: Say) -> dict[str, Any]:
    """Raises Unsupported where no sandbox can be made; what the back end can't do is null."""
    pool = await open_pool(settings)
    try:
        found = _machine(pool)
        found |= await _singles(pool, rounds, say)
        found |= await _forks(pool, max(rounds // 4, 5), say)
        found |= await _load(pool, live, say)
        found["peers"] = await _peers(pool, rounds, say) if with_peers else {}
    finally:
        await pool.close()
    found["ratios"] = _ratios(found)
    return found


def _machine(pool: SandboxPool) -> dict[str, Any]:
    about = pool.probe()
    return {
        "backend": about.backend,
        "runner": about.runner,
        "limits": about.limits,
        "user": "root" if os.geteuid() == 0 else "ordinary",
        "kernel": platform.release(),
        "cores": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


async def _singles(pool: SandboxPool, rounds: int, say: Say) -> dict[str, Any]:
    say(f"one at a time, {rounds} rounds")
    box = await pool.create(SPEC)
    warm_box = await pool.create(WARM)
    single = SingleSandboxBenchmark(pool, box, warm_box)
    measures: dict[str, Timed] = {
        "fork_exec_ms": fork_exec,
        "create_ms": single.create,
        "exec_ms": single.exec,
        "kill_ms": single.kill,
        "warm_ms": single.warm,
    }
    found: dict[str, Any] = {name: summary(times) for name, times in (await interleave(measures, rounds)).items()}
    found["stream_mb_s"] = round(quantile([await single.stream_mb_s() for _ in range(_STREAMS)], 0.5))
    await _end([box, warm_box])
    return found


async def _forks(pool: SandboxPool, rounds: int, say: Say) -> dict[str, Any]:
    if not pool.probe().snapshots:
        return {"fork_ms": None, "fork8_ms": None}
    say(f"forks of 2,000 files, 70 changed, {rounds} rounds")
    forking = await ForkBenchmark.over(pool)
    measures: dict[str, Timed] = {
        "fork_ms": functools.partial(forking.fork, 1),
        "fork8_ms": functools.partial(forking.fork, 8),
    }
    times = await interleave(measures, rounds)
    await forking.close()
    return {name: summary(values) for name, values in times.items()}


async def _load(pool: SandboxPool, live: int, say: Say) -> dict[str, Any]:
    say(f"{live} live at once")
    before_mib = available_mib()
    made, creates = await many_live(pool, live)
    idle_mib = (before_mib - available_mib()) / live
    say(f"commands over {min(BUSY, live)} of them")
    rate = await exec_per_s(made[:BUSY], COMMANDS)
    await _end(made)
    return {
        "creates_per_s": round(creates, 1),
        "live": live,
        "idle_mib": round(idle_mib, 2),
        "exec_per_s": round(rate),
    }


async def _end(boxes: list[Sandbox]) -> None:
    for box in boxes:
        await box.kill()


async def _peers(pool: SandboxPool, rounds: int, say: Say) -> dict[str, Any]:
    """Ours again in the same rounds, so that ratios are of the same minutes."""
    rows: dict[str, Any] = {}
    for name, (program, kind) in peers.PEERS.items():
        if shutil.which(program) is None:
            rows[name] = {"reason": f"{program} is not installed"}
            continue
        say(f"peer {name}")
        try:
            rows[name] = await _compare_with_peer(pool, kind(), min(rounds, _SLOW_ROUNDS))
        except peers.PeerFailed as error:
            rows[name] = {"reason": str(error)}
    return rows


async def _compare_with_peer(pool: SandboxPool, peer: peers.Peer, rounds: int) -> dict[str, Any]:
    box = await pool.create(SPEC)
    single = SingleSandboxBenchmark(pool, box)
    try:
        measures: dict[str, Timed] = {
            "own_create": single.create,
            "create": peer.create,
            "own_exec": single.exec,
            "exec": peer.exec,
            "own_kill": single.kill,
        }
        times = await interleave(measures, rounds, warm_up=1)
    finally:
        await box.kill()
        await peer.close()
    row: dict[str, Any] = {f"{key}_ms": summary(times[key]) for key in ("create", "exec")}
    for key in ("create", "exec"):
        row[f"{key}_ratio"] = round(quantile(times[key], 0.5) / quantile(times[f"own_{key}"], 0.5), 1)
    return row


def _ratios(found: dict[str, Any]) -> dict[str, float]:
    unit = found["fork_exec_ms"]["p50"]
    return {key: round(found[key]["p50"] / unit, 2) for key in ("create_ms", "exec_ms")}


# Foreign load changes all times of a round alike, so ratios within a run say more than times.

Action = Callable[[], Awaitable[object]]
# A measure that prepares outside the clock returns the seconds that count; any other counts as a whole.
Timed = Callable[[], Awaitable[float | None]]


def quantile(values: list[float], q: float) -> float:
    """The smallest value that at least a part q of all do not exceed (nearest rank)."""
    if not values or not 0 < q <= 1:
        raise ValueError(f"a quantile of {len(values)} values at {q}: give values and 0 < q <= 1")
    return sorted(values)[math.ceil(q * len(values)) - 1]


def summary(values_ms: list[float]) -> dict[str, float]:
    return {"p50": round(quantile(values_ms, 0.5), 3), "p99": round(quantile(values_ms, 0.99), 3)}


async def interleave(measures: Mapping[str, Timed], rounds: int, warm_up: int = 2) -> dict[str, list[float]]:
    """Milliseconds of each measure, one of each a round; the first rounds, in which caches fill, are left out."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(warm_up + rounds):
        for name, measure in measures.items():
            start = time.perf_counter()
            own_s = await measure()
            spent_s = time.perf_counter() - start if own_s is None else own_s
            if number >= warm_up:
                found[name].append(1e3 * spent_s)
    return found


# Forks of a repository: 2,000 files, of which 70 changed since its snapshot.

FILES, CHANGED, FILE_BYTES = 2000, 70, 4800


def tree() -> bytes:
    """The repository as an archive: 2,000 files of 4.8 kB in 40 folders, 9.6 MB."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(FILES):
            member = tarfile.TarInfo(_name(number))
            member.size = FILE_BYTES
            archive.addfile(member, io.BytesIO(f"{number:08d}\n".encode() * (FILE_BYTES // 9 + 1)))
    return stream.getvalue()


def _name(number: int) -> str:
    return f"repo/d{number % 40:02d}/f{number:04d}.py"


class ForkBenchmark:
    """A sandbox over the repository's snapshot; every fork comes after its 70 files were rewritten."""

    def __init__(self, parent: Sandbox) -> None:
        self._parent = parent
        self._round = 0

    @classmethod
    async def over(cls, pool: SandboxPool) -> ForkBenchmark:
        first = await pool.create(SPEC)
        await first.put_tar(".", tree())
        snapshot = await first.snapshot("speed")
        parent = (await pool.restore(snapshot, SPEC))[0]
        await first.kill()
        if isinstance(parent, SandboxError):
            raise parent
        return cls(parent)

    async def fork(self, children: int) -> float:
        """From the call until each child has ended its first command."""
        self._round += 1
        step = FILES // CHANGED
        numbers = f"$(seq 0 {step} {step * (CHANGED - 1)})"
        name = "$(printf 'repo/d%02d/f%04d.py' $((i % 40)) $i)"
        script = f"for i in {numbers}; do echo {self._round} >> {name}; done"
        done = await self._parent.run(script)
        if done.rc != 0:
            raise RuntimeError(f"changing the files failed: {done.err!r}")
        start = time.perf_counter()
        made = await self._parent.fork(children)
        alive = [one for one in made if not isinstance(one, SandboxError)]
        await asyncio.gather(*(one.run(["true"]) for one in alive))
        spent_s = time.perf_counter() - start
        await asyncio.gather(*(one.kill() for one in alive))
        if len(alive) != children:
            raise next(one for one in made if isinstance(one, SandboxError))
        return spent_s

    async def close(self) -> None:
        await self._parent.kill()
