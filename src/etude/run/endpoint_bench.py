"""The bench of any OpenAI-compatible endpoint: held-out exercises and real-package bugs, in the one harness.

Its folder is a run directory of its own: outcomes as they come, then `report.json` and `report.html` in the schema of every
run. A bench that was stopped goes on; one that was begun under other conditions is refused rather than mixed.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from etude.bench.contest import STAGE, Contest
from etude.bench.outcome import Outcome
from etude.bench.real.grader import PytestGrader, with_pytest
from etude.bench.real.pin import PackagesUnavailable, default_cache
from etude.bench.real.source import RealPackages
from etude.bench.suite import choose
from etude.bench.summary import summarise
from etude.events.log import EventLog
from etude.factory.exercises.source import ExerciseSource
from etude.fleet.open import open_sandboxes
from etude.harness.presets.preset import harness_hash, preset
from etude.harness.settings import HarnessSettings
from etude.harness.task_facts import TaskFacts
from etude.policy.breaker import Breaker
from etude.policy.meter import Meter, Spent, read_spent
from etude.policy.protocol import PolicyError, Request
from etude.recipe.read import resolved_toml
from etude.recipe.recipe import Recipe
from etude.report.write import write_report
from etude.rollout.attempt import Setup
from etude.rollout.code_search import code_search
from etude.rollout.settings import AttemptSettings
from etude.run.endpoint import SUITES, Endpoint, Prices, Suite
from etude.run.machine import machine, versions
from etude.run.meter import Cost
from etude.run.meter import Meter as Metered
from etude.run.stage import write_json
from etude.tasks.registry import GRADERS
from etude.tasks.task import Task
from etude.trace.message import Message

# Waits of 0.5 to 60 s, over two minutes in all: quotas are counted by the minute.
RETRIES = 8
MEMORY_MB = 512
# A level of one task adds nothing to an interval, which is then too narrow; two are the fewest that do.
TASKS_PER_LEVEL = 2


class EndpointRefused(Exception):
    """The endpoint can't be asked, or not under these conditions; says why and what to do."""


async def bench_endpoint(recipe: Recipe, endpoint: Endpoint, folder: Path, log: EventLog) -> dict[str, Any]:
    """The report, as in report.json. Resumable: outcomes in `folder` are not asked again.

    Raises EndpointRefused, EndpointGone, BenchUnfinished.
    """
    harness = endpoint.harness(recipe)
    _describe(recipe, endpoint, harness, folder)
    chosen: dict[Suite, list[Task]] = {s: _tasks(recipe, endpoint, s, log) for s in endpoint.suites}
    await greet(endpoint, harness, log)
    client = endpoint.policy(RETRIES)
    policy = Breaker(Meter(client, folder / "usage.jsonl", partial(_tell, endpoint, log)))
    settings = AttemptSettings(attempts=2, limit_s=endpoint.attempt_limit_s, memory_mb=MEMORY_MB)
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        async with code_search(harness) as search:
            setup = Setup(policy, pool, GRADERS, harness, settings=settings, search=search)
            for suite, tasks in chosen.items():
                await _ask(recipe, endpoint, suite, tasks, _fitted(suite, setup), folder, log)
    finally:
        await pool.close()
        await client.close()
    return write_report(folder, recipe.report)


def _describe(recipe: Recipe, endpoint: Endpoint, harness: HarnessSettings, folder: Path) -> None:
    """Write down what is asked under which conditions; refuse to go on under others."""
    folder.mkdir(parents=True, exist_ok=True)
    conditions = {
        "model": endpoint.model,
        "harness": harness_hash(harness, ""),
        "limits": harness.model_dump(mode="json"),
        "exercises": recipe.exercises.model_dump(mode="json"),
        "seed": recipe.bench.seed,
    }
    path = folder / "conditions.json"
    if (folder / "recipe.toml").is_file() and not path.is_file():
        raise EndpointRefused(f"{folder} is the directory of another run: give the bench an --out of its own")
    before = json.loads(path.read_text()) if path.is_file() else conditions
    changed = [key for key, value in conditions.items() if before.get(key) != value]
    if changed and any((folder / f"{suite}.jsonl").is_file() for suite in SUITES):
        raise EndpointRefused(
            f"{folder} holds attempts made under other conditions ({', '.join(changed)}): give another --out, or remove it"
        )
    write_json(path, conditions)
    named = recipe.model_copy(update={"run": recipe.run.model_copy(update={"name": endpoint.model})})
    (folder / "recipe.toml").write_text(resolved_toml(named))
    write_json(folder / "machine.json", {"machine": machine(), "versions": versions()})


def _tasks(recipe: Recipe, endpoint: Endpoint, suite: Suite, log: EventLog) -> list[Task]:
    if suite == "real":
        log.note(STAGE, "looks for the packages of the real suite; the first time they are downloaded, 1-3 minutes")
        source = RealPackages(default_cache())
        try:
            return [source.task(task_id) for task_id in source.ids("heldout")[: endpoint.tasks]]
        except PackagesUnavailable as error:
            raise EndpointRefused(f"{error}. Without a package index, ask --suite exercises") from error
    weights = {str(level): weight for level, weight in recipe.exercises.levels.items()}
    count, levels = endpoint.tasks or 24, sum(weight > 0 for weight in weights.values())
    if count < levels * TASKS_PER_LEVEL:
        raise EndpointRefused(
            f"--tasks {count}: the exercises have {levels} levels, and an interval needs {TASKS_PER_LEVEL} tasks of each: "
            f"give --tasks {levels * TASKS_PER_LEVEL} or more"
        )
    floors = dict.fromkeys(weights, TASKS_PER_LEVEL)
    return choose(ExerciseSource(recipe.exercises), weights, count, recipe.bench.seed, floors=floors)


def _fitted(suite: Suite, setup: Setup) -> Setup:
    """Real tasks bring their grader, and pytest into the agent's sandbox."""
    if suite != "real":
        return setup
    cache = default_cache()
    return replace(setup, graders={"pytest": PytestGrader(cache)}, adapt=partial(with_pytest, cache=cache))


async def greet(endpoint: Endpoint, harness: HarnessSettings, log: EventLog) -> None:
    """One short turn with the tools, so that a wrong address, key, name or field costs a second and one line.

    Raises EndpointRefused.
    """
    client = endpoint.policy(1)
    facts = TaskFacts("greeting", "Call the tool done with the message ok. Nothing else is to be done.")
    request = Request(
        "greeting",
        (Message("system", preset(harness.preset).system), Message("user", facts.instruction)),
        preset(harness.preset).schemas,
        max_tokens=harness.max_tokens_per_turn,
        temperature=harness.temperature,
        effort=harness.effort,
    )
    try:
        answer = await client.complete(request)
    except PolicyError as error:
        hint = "; a server may have to be started with tool calls enabled" if "tool" in str(error).lower() else ""
        raise EndpointRefused(f"{endpoint.model} did not answer a greeting: {error}{hint}") from error
    finally:
        await client.close()
    if answer.message is not None and not answer.message.calls:
        log.note(
            STAGE, f"{endpoint.model} answered the greeting without the tool call asked for: are tool calls enabled?"
        )


def _tell(endpoint: Endpoint, log: EventLog, total: Spent) -> None:
    values = {"input_tokens": float(total.input_tokens), "output_tokens": float(total.output_tokens)}
    dollars = endpoint.prices.dollars(total)
    log.metric(STAGE, total.turns, **values, **({} if dollars is None else {"dollars": dollars}))


async def _ask(
    recipe: Recipe, endpoint: Endpoint, suite: Suite, tasks: list[Task], setup: Setup, folder: Path, log: EventLog
) -> None:
    """Ask one suite and leave its summary where the report looks for it."""
    log.note(STAGE, f"{suite}: {len(tasks)} tasks x {endpoint.passes}, {endpoint.concurrency} at a time")
    contest = Contest(tasks, folder, endpoint.concurrency, recipe.bench.seed, log, recipe.bench.keep_sessions)
    stage = "bench" if suite == "exercises" else "bench_real"
    with Metered(partial(_count, folder / "stages.json", stage, _spent_before(folder / "stages.json", stage))):
        outcomes = await contest.run(suite, setup, endpoint.passes)
    mix = {str(level): weight for level, weight in recipe.exercises.levels.items()} if suite == "exercises" else None
    entry = summarise(outcomes, recipe.bench, mix)
    ids = {task.id for task in tasks}
    spent = read_spent(folder / "usage.jsonl", lambda session: session.rpartition("#")[0] in ids)
    entry["usage"] = {**asdict(spent), **_per_attempt(endpoint.prices, spent, len(outcomes))}
    if suite == "real":
        entry["by_package"] = _by_package(outcomes, {task.id: task.metadata["package"] for task in tasks})
    held = {"bench": {endpoint.model: entry}} if suite == "exercises" else {endpoint.model: entry}
    (folder / stage).mkdir(exist_ok=True)
    write_json(folder / stage / "summary.json", held)


def _per_attempt(prices: Prices, spent: Spent, attempts: int) -> dict[str, float | None]:
    """Means over the scored attempts; retried tries are paid for too, so their tokens are in."""
    dollars = prices.dollars(spent)
    known = attempts > 0 and not spent.unreported
    return {
        "input_tokens_per_attempt": round(spent.input_tokens / attempts, 1) if known else None,
        "output_tokens_per_attempt": round(spent.output_tokens / attempts, 1) if known else None,
        "dollars": None if dollars is None else round(dollars, 6),
        "dollars_per_attempt": None if dollars is None or not attempts else round(dollars / attempts, 6),
    }


def _by_package(outcomes: list[Outcome], package_of: dict[str, str]) -> dict[str, dict[str, float]]:
    rows: dict[str, list[float]] = {}
    for outcome in outcomes:
        rows.setdefault(package_of[outcome.task_id], []).append(outcome.score)
    return {name: {"avg": round(100 * sum(s) / len(s), 2), "attempts": len(s)} for name, s in sorted(rows.items())}


def _spent_before(path: Path, stage: str) -> Cost:
    """What a stage cost in all the times before."""
    return Cost(**_costs(path).get(stage, {}))


def _count(path: Path, stage: str, before: Cost, now: Cost) -> None:
    """Sandboxes included, and saved as it goes: an outage or a kill loses a few seconds of it."""
    write_json(path, _costs(path) | {stage: asdict(before + now)})


def _costs(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}
