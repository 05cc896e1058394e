"""Puts teacher, tasks and sandboxes together for `etude session collect`: policies are named as for `etude bench run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from etude.core.events.log import EventLog
from etude.core.plugins import source_digests
from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.prices import Price, Prices, priced_by, shipped_prices
from etude.evaluate.bench.runs.cost import dollars_of_usage
from etude.evaluate.bench.runs.participant import Participant
from etude.evaluate.bench.suites.builtin import TaskSuite
from etude.evaluate.bench.suites.from_tasks import Choice
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.evaluate.bench.suites.suite import Suite
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.participants import resolve_participants
from etude.pipeline.run.policy_options import PolicyOptions, UnknownPolicy
from etude.rollout.attempt import AttemptSetup
from etude.rollout.campaign import CampaignObserver, CampaignSummary
from etude.rollout.code_search import code_search
from etude.rollout.collect.collecting import Collection, CollectionSettings, Keep
from etude.rollout.collect.tries import CollectedAttempt, CollectionLog
from etude.rollout.settings import AttemptSettings
from etude.sandbox.fleet.open import open_sandboxes
from etude.tasks.errors import TaskError
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import GRADERS, graders_with
from etude.tasks.running.pin import default_cache
from etude.tasks.store.opened import open_tasks
from etude.tasks.task import Grader, Task

# Where the tasks of `etude bench make --from-tasks` come from.


@dataclass(frozen=True)
class SuiteSource:
    """Tasks by id, and who grades them."""

    ids: Sequence[str]
    make: Callable[[str], Task]
    graders: dict[str, Grader]


def source_of(named: str, recipe: Recipe, choice: Choice) -> SuiteSource:
    """`exercises`, `real` or a folder of tasks: one that was made here, or Harbor directories. Without a split the built-in sources give
    held-out tasks, and a folder all of its tasks. Raises SuiteError, PluginError."""
    split = choice.split or "heldout"
    if named == "exercises":
        source = ExerciseSource(recipe.exercises)
        try:
            return SuiteSource(source.ids(split, level=choice.level), source.task, dict(GRADERS))
        except ValueError as error:
            raise SuiteError(str(error)) from error
    if named == "real":
        packages = RealPackages(default_cache())
        return SuiteSource(packages.ids(split, level=choice.level), packages.task, dict(GRADERS))
    folder = Path(named)
    if not folder.is_dir():
        raise SuiteError(
            f"{named}: there is no such folder; give a folder of tasks (`etude tasks make --out {named}`), one of Harbor "
            "directories, exercises, or real"
        )
    try:
        tasks = open_tasks(folder)
    except TaskError as error:
        raise SuiteError(str(error)) from error
    if not (ids := [*tasks.ids(choice.split, level=choice.level)]):
        raise SuiteError(_without_tasks(named, choice, Counter(row.split for row in tasks.rows.values())))
    return SuiteSource(ids, tasks.task, graders_with(recipe.tasks.plugins))


def _without_tasks(named: str, choice: Choice, splits: Mapping[str, int]) -> str:
    held = ", ".join(f"{count} of {split}" for split, count in sorted(splits.items()))
    wanted = " ".join(f"{key} {value!r}" for key in ("level", "split") if (value := getattr(choice, key)))
    return f"{named} holds no task of {wanted or 'any kind'} ({held or 'it is empty'}); choose another with --set split=NAME or make more tasks"


TRIES = 2  # as of a bench run: they bridge a sandbox that died


class TeacherPriceMissing(Exception):
    """A budget was set for a teacher whose price is unknown."""


@dataclass(frozen=True)
class CollectionOrder:
    """What is to be collected, of whom, at what."""

    policy: str
    tasks: str
    folder: Path
    keep: Keep = "passed"
    per_task: int = 1
    tries: int = 1
    count: int | None = None
    concurrency: int = 4
    seed: int = 0
    max_cost: float | None = None
    attempt_limit_s: float = 3600.0
    choice: Choice = Choice(split="train")
    prices: Prices = field(default_factory=Prices)


def suite_of(order: CollectionOrder, recipe: Recipe) -> Suite:
    """The tasks as a suite made on the spot: it pins nothing. Raises SuiteError."""
    source = source_of(order.tasks, recipe, order.choice)
    # A slice makes every id, of which there may be a million.
    ids = source.ids if order.count is None else source.ids[: order.count]
    manifest = SuiteManifest(name="collected", version="1", released=date.today())
    return TaskSuite(manifest, ids, source.make, graders=source.graders)


def teacher(order: CollectionOrder, suite: Suite, recipe: Recipe, options: PolicyOptions, log: EventLog) -> Participant:
    """Raises UnknownPolicy."""
    found = resolve_participants([order.policy], suite, recipe, options, log, only=True)
    if len(found) != 1:
        raise UnknownPolicy(f"{order.policy}: sessions are collected of one teacher at one effort at a time")
    return found[0]


async def collect(
    order: CollectionOrder,
    recipe: Recipe,
    suite: Suite,
    participant: Participant,
    observer: CampaignObserver[CollectedAttempt],
) -> tuple[CollectionLog, CampaignSummary]:
    """What was tried in all, and how this run ended. Raises NoPrice, Conflict, PolicyError where the teacher is gone."""
    price = order.prices.at(participant.model, date.today()) or shipped_prices().at(participant.model, date.today())
    if order.max_cost is not None and price is None and participant.kind == "endpoint":
        raise TeacherPriceMissing(
            f"--max-cost needs to know what {participant.model} costs, and no list names it: give --price-in and --price-out, or: "
            f"{priced_by(participant.model)}"
        )
    tries = CollectionLog(order.folder, collection_conditions(order, participant, recipe.tasks.plugins))
    facts = {"teacher": participant.name, "effort": participant.effort}
    wanted = CollectionSettings(
        suite.ids, suite.task, order.keep, order.per_task, order.tries, order.concurrency, order.seed, order.max_cost,
        _priced(price, free=participant.kind != "endpoint"), facts,
    )  # fmt: skip
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        async with participant.open() as seat, code_search(participant.harness) as search:
            limits = AttemptSettings(attempts=TRIES, limit_s=order.attempt_limit_s, max_export_bytes=64 << 20)
            setup = AttemptSetup(
                seat.policy, pool, suite.graders, participant.harness, seat.renderer, limits, adapt=suite.adapt, search=search,
                agent=seat.agent,
            )  # fmt: skip
            return tries, await Collection(wanted, setup, order.folder, tries, observer).run()
    finally:
        await pool.close()


def collection_conditions(
    order: CollectionOrder, participant: Participant, plugins: Sequence[str] = ()
) -> dict[str, Any]:
    """What makes sessions of one folder alike. `plugins`: graders by import path. Raises PluginError."""
    bound = {"plugins": source_digests(plugins)} if plugins else {}
    return {
        "teacher": participant.name,
        "model": participant.model,
        "effort": participant.effort,
        "harness": participant.harness_hash,
        "keep": order.keep,
        "tasks": order.tasks,
        "seed": order.seed,
        **bound,
    }


def _priced(price: Price | None, *, free: bool):
    if free:
        return lambda usage: 0.0
    return lambda usage: dollars_of_usage(price, usage) if price is not None else None


def account(tries: CollectionLog, collected: CampaignSummary) -> dict[str, Any]:
    """For people and programs."""
    rows = list(tries.rows.values())
    kept, passed = tries.kept_attempts(), sum(row.score >= 1.0 for row in rows)
    known = [row.dollars for row in rows if row.dollars is not None]
    return {
        "folder": str(tries.path.parent),
        "tries": len(rows),
        "passed": passed,
        "kept": len(kept),
        "tasks": len({row.task for row in rows}),
        "tasks_kept": len({row.task for row in kept}),
        "duplicates": sum(row.why.startswith("left the same files") for row in rows),
        "input_tokens": sum(row.input_tokens for row in rows),
        "output_tokens": sum(row.output_tokens for row in rows),
        "dollars": round(sum(known), 4) if len(known) == len(rows) else None,
        "dollars_per_kept": round(sum(known) / len(kept), 4) if kept and len(known) == len(rows) else None,
        "seconds": round(sum(row.seconds for row in rows), 1),
        "faults": {key: str(fault) for key, fault in collected.faults.items()},
        "stopped": collected.stopped,
    }
