"""The whole measurement, and what it is worth: keys as README and `benchmarks/results/sandbox.json` have them."""

from __future__ import annotations

import functools
import os
import platform
import shutil
from collections.abc import Callable
from typing import Any

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.speed import peers
from etude.sandbox.speed.clock import Timed, interleave, quantile, summary
from etude.sandbox.speed.forking import Forking
from etude.sandbox.speed.single import SPEC, WARM, Single, available_mib, exec_per_s, fork_exec, many_live

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
    single = Single(pool, box, warm_box)
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
    forking = await Forking.over(pool)
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
            rows[name] = await _beside(pool, kind(), min(rounds, _SLOW_ROUNDS))
        except peers.PeerFailed as error:
            rows[name] = {"reason": str(error)}
    return rows


async def _beside(pool: SandboxPool, peer: peers.Peer, rounds: int) -> dict[str, Any]:
    box = await pool.create(SPEC)
    single = Single(pool, box)
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
