"""The end of the rl stage: the mismatch probe, the checkpoint, and the summary for the report."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.agent.chat.renderer import Renderer
from etude.agent.policy.protocol import Request
from etude.core.events.finite import dumps, loads
from etude.core.files import replace_file
from etude.learn.engine.probe import PROMPT_TOKENS, SAMPLED_TOKENS, probe_prompts
from etude.rl.ledger import entries_of, fold
from etude.rl.metrics import summarize
from etude.rl.services import Services
from etude.rl.solvable_share import SOLVABLE
from etude.rl.steps import alarms_of, read, tokens_by_version

if TYPE_CHECKING:
    from etude.rl.run import RlRun


async def finish(run: RlRun, services: Services, renderer: Renderer, times: dict[str, float]) -> dict[str, Any]:
    """Write what the stage leaves behind; returns the summary."""
    mismatch = await _mismatch(run, services, len(renderer.vocabulary()))
    await services.export(run.folder / "checkpoint")
    records = read(run.folder / "steps.jsonl")
    totals = times | _shares(times["train_s"], services.trainer_busy_s, await services.engine_stats())
    totals["restarts"] = float(services.restarts)
    summary = summarize(
        [{"step": record.step, **record.values} for record in records], tokens_by_version(records), totals
    )
    summary["mismatch"] = mismatch
    summary["alarms"] = alarms_of(records)
    if given_up := fold(entries_of(run.folder / "ledger.jsonl")).unreachable:
        summary["unreachable"] = list(given_up.values())
    if (found := run.folder / SOLVABLE).exists():
        summary["solvable"] = loads(found.read_text(encoding="utf-8"))
    _write(run.folder / "summary.json", summary)
    return summary


async def _mismatch(run: RlRun, services: Services, vocabulary: int) -> dict[str, Any]:
    """The fixed probe (promise 3): sampled by the engine process under the last version, recomputed by the trainer."""
    room = run.engine.max_len - SAMPLED_TOKENS
    prompts = [prompt[: min(2 * PROMPT_TOKENS, room)] for prompt in probe_prompts(vocabulary, run.settings.seed)]
    requests = [
        Request(f"probe-{n}", (), prompt_ids=prompt, max_tokens=SAMPLED_TOKENS, seed=n)
        for n, prompt in enumerate(prompts)
    ]
    newest = services.engines.newest
    answers = await asyncio.gather(*(newest.complete(request) for request in requests))
    found = await services.compare([(p, a.tokens) for p, a in zip(prompts, answers, strict=True) if a.tokens])
    return {
        "k3": found.mean_k3,
        "p99": found.p99_dlogp,
        "max": found.max_dlogp,
        "routes_equal": found.routes_equal,
        "tokens": found.tokens,
        "routes": found.routes,
    }


def _shares(wall_s: float, trainer_busy_s: float, engine: dict[str, float]) -> dict[str, float]:
    """Idle shares of the two processes over the training time (of this life of the run, if it was resumed)."""
    busy_s = sum(engine.get(name, 0.0) for name in ("decode_s", "prefill_s", "swap_s"))
    return {
        "engine_idle_share": max(0.0, 1 - busy_s / wall_s),
        "trainer_idle_share": max(0.0, 1 - trainer_busy_s / wall_s),
        **{
            f"engine_{name}": value
            for name, value in engine.items()
            if name in ("tokens_per_s", "mean_batch", "cache_hit", "refused_files") or name.startswith("acceptance_")
        },
    }


def _write(path: Path, value: Any) -> None:
    replace_file(path, dumps(value, indent=1) + "\n")
