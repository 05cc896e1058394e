"""The bench of any OpenAI-compatible endpoint: the run's own held-out tasks and the real-package bugs, in the one harness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from etude.bench.contest import Contest
from etude.bench.real.grader import PytestGrader, with_pytest
from etude.bench.real.pin import PackagesUnavailable, default_cache
from etude.bench.real.source import RealPackages
from etude.bench.suite import choose
from etude.bench.summary import summarise
from etude.events.log import EventLog
from etude.factory.exercises.source import ExerciseSource
from etude.policy.openai import OpenAIPolicy
from etude.recipe.recipe import Recipe
from etude.rollout.attempt import Setup
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.tasks.registry import GRADERS

# The nano model's limits would starve a large model: it thinks in prose, reads whole files and takes more turns.
ENDPOINT_LIMITS = {
    "preset": "full",
    "max_turns": 40,
    "max_tokens_per_turn": 4096,
    "max_session_tokens": 120_000,
    "max_tool_lines": 200,
    "max_tool_bytes": 16_000,
    "max_matches": 50,
    "test_timeout_s": 60.0,
}


@dataclass(frozen=True)
class Endpoint:
    """Who is asked: the server's address (".../v1"), the model's name there, and how much of it."""

    url: str
    model: str
    tasks: int
    passes: int
    concurrency: int
    real: bool = True


async def bench_endpoint(recipe: Recipe, endpoint: Endpoint, folder: Path, log: EventLog) -> dict[str, Any]:
    """`bench` and `bench_real` as in report.json. Resumable: outcomes in `folder` are not asked again."""
    pool = await open_pool(recipe.sandbox)
    harness = recipe.harness.model_copy(update=ENDPOINT_LIMITS)
    policy = OpenAIPolicy(endpoint.model, base_url=endpoint.url)
    setup = Setup(policy, pool, GRADERS, harness)
    try:
        summary: dict[str, Any] = {"bench": {endpoint.model: await _exercises(recipe, endpoint, setup, folder, log)}}
        if endpoint.real:
            summary["bench_real"] = await _real(recipe, endpoint, setup, pool, folder, log)
        return summary
    finally:
        await pool.close()


async def _exercises(recipe: Recipe, endpoint: Endpoint, setup: Setup, folder: Path, log: EventLog) -> dict[str, Any]:
    weights = {str(level): weight for level, weight in recipe.exercises.levels.items()}
    tasks = choose(ExerciseSource(recipe.exercises), weights, endpoint.tasks, recipe.bench.seed)
    contest = Contest(tasks, folder, endpoint.concurrency, recipe.bench.seed, log)
    return summarise(await contest.run("exercises", setup, endpoint.passes), recipe.bench)


async def _real(
    recipe: Recipe, endpoint: Endpoint, setup: Setup, pool: SandboxPool, folder: Path, log: EventLog
) -> dict[str, Any]:
    """Left out with its reason where the packages can't be had."""
    cache = default_cache()
    try:
        source = RealPackages(cache)
        tasks = [source.task(task_id) for task_id in source.ids("heldout")]
        adapted = replace(setup, graders={"pytest": PytestGrader(cache)}, adapt=partial(with_pytest, cache=cache))
        contest = Contest(tasks, folder, endpoint.concurrency, recipe.bench.seed, log)
        return summarise(await contest.run("real", adapted, endpoint.passes), recipe.bench)
    except PackagesUnavailable as reason:
        log.note("bench", f"real-package bugs left out: {reason}")
        return {"skipped": str(reason)}
