"""A suite asked of policies: what `etude bench run` does. It puts suite, participants and sandboxes together and leaves the report.

Whatever ends it early (a budget, an endpoint that is gone, Ctrl-C, a kill), what was made stays, the report is of the whole
passes so far, and the same command goes on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from etude.core.events.log import EventLog
from etude.evaluate.bench.outcome import OutcomeFile
from etude.evaluate.bench.prices import Prices, priced_by
from etude.evaluate.bench.run_report import write_report
from etude.evaluate.bench.runs import conditions
from etude.evaluate.bench.runs.budget import RunBudget
from etude.evaluate.bench.runs.checking import STRICT, checked_tasks
from etude.evaluate.bench.runs.cost import cost_by_policy, dollars_of
from etude.evaluate.bench.runs.folder import RunFolder, replace_text
from etude.evaluate.bench.runs.participant import Participant
from etude.evaluate.bench.runs.participant_run import Bench, ParticipantProgress, ParticipantRun
from etude.evaluate.bench.runs.table import price_row, read_table
from etude.evaluate.bench.suites.suite import Suite, label
from etude.evaluate.report.write import write_page
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.machine import machine, versions
from etude.pipeline.run.meter import Meter, StageCost
from etude.rollout.code_search import code_search
from etude.rollout.settings import AttemptSettings
from etude.sandbox.fleet.open import open_sandboxes

STAGE = "bench"
# Two tries bridge a sandbox that died; an endpoint's own retries bridge the rest.
TRIES = 2
MEMORY_MB = 512


class PolicyPriceMissing(Exception):
    """A budget was set for a policy whose price is unknown."""


@dataclass(frozen=True)
class BenchmarkOrder:
    """What is to be done. `ids`: the tasks asked, in the suite's order; `prices` are used in addition to the suite's own, and before them."""

    suite: Suite
    ids: Sequence[str]
    participants: Sequence[Participant]
    folder: Path
    log: EventLog
    passes: int = 1
    concurrency: int = 4
    seed: int = 7
    resamples: int = 2000
    max_cost: float | None = None
    other_suites: Sequence[
        Path
    ] = ()  # folders of the same command's other suites: what they cost counts towards `max_cost`
    attempt_limit_s: float = 3600.0
    prices: Prices = field(default_factory=Prices)
    judge: str | None = None  # who will judge what rubrics ask

    @property
    def limits(self) -> AttemptSettings:
        """Of one attempt, with what the suite pins."""
        base = AttemptSettings(attempts=TRIES, limit_s=self.attempt_limit_s, memory_mb=MEMORY_MB)
        return self.suite.manifest.attempts(base)


async def bench_suite(recipe: Recipe, order: BenchmarkOrder) -> tuple[dict[str, Any], list[ParticipantProgress]]:
    """The report, and how each participant's asking ended.

    Raises SuiteBroken, NotStrict, ConditionsDiffer, NoPrice before anybody is asked; EndpointRefused, EndpointGone, UsageMissing,
    with the report of what was made by then written.
    """
    folder, log = RunFolder(order.folder), order.log
    log.note(STAGE, f"looks at the {len(order.ids)} tasks of {label(order.suite)}, their graders and environment")
    tasks = checked_tasks(order.suite, order.ids)
    conditions.begin(
        folder,
        shared_conditions(order),
        {participant.key: facts(order, participant) for participant in order.participants},
    )
    replace_text(folder.machine, json.dumps({"machine": machine(), "versions": versions()}, indent=1) + "\n")
    asked: list[ParticipantProgress] = []
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        rest = (order.passes, order.concurrency, order.seed)
        bench = Bench(order.suite, tasks, folder, pool, log, _purse(folder, order), *rest)
        for participant in order.participants:
            asked.append(await _ask(bench, participant, order))
    finally:
        await pool.close()
        document = write_report(folder)
        write_page(folder.root)
    return document, asked


async def _ask(bench: Bench, participant: Participant, order: BenchmarkOrder) -> ParticipantProgress:
    price = next(row.price for row in read_table(bench.folder).rows if row.key == participant.key)
    before = _timings(bench.folder.timings).get(participant.key, {})
    async with code_search(participant.harness) as search:
        asking = ParticipantRun(bench, participant, order.limits, price, search)
        with Meter(partial(_time, bench.folder.timings, participant.key, StageCost(**before))):
            found = await asking.run()
    order.log.note(participant.key, asking.line(), ends=True)
    return found


def shared_conditions(order: BenchmarkOrder) -> dict[str, Any]:
    """The conditions that bind all policies of a folder."""
    suite = order.suite
    return {
        "suite": {"label": label(suite), "name": suite.name, "version": suite.version, "digest": suite.digest},
        "tasks": list(order.ids),
        "weights": dict(suite.weights) if suite.weights else None,
        "seed": order.seed,
        "strict": STRICT,
        "report": {"resamples": order.resamples, "rubrics": rubrics(order), "judge": order.judge},
    }


def rubrics(order: BenchmarkOrder) -> int:
    """How many of the tasks need a judge in addition to their tests."""
    return sum(order.suite.rubric(task_id) is not None for task_id in order.ids)


def facts(order: BenchmarkOrder, participant: Participant) -> dict[str, Any]:
    """The conditions of one policy. Raises NoPrice."""
    today = date.today()
    price = order.prices.at(participant.model, today) or order.suite.prices.at(participant.model, today)
    if price is None and order.max_cost is not None and participant.kind == "endpoint":
        raise PolicyPriceMissing(
            f"--max-cost needs to know what {participant.model} costs, and no list names it (--prices, the suite's prices.toml, the "
            f"program's own): {priced_by(participant.model)}"
        )
    return {
        "name": participant.name,
        "effort": participant.effort,
        "kind": participant.kind,
        "model": participant.model,
        "harness": participant.harness_hash,
        "settings": participant.harness.model_dump(mode="json"),
        "attempt": order.limits.model_dump(mode="json"),
        "passes": order.passes,
        "price": price_row(price) if participant.model else None,
        "priced": today.isoformat() if price and participant.model else None,
        **({"agent": participant.agent} if participant.agent else {}),
        **(participant.facts or {}),
    }


def _purse(folder: RunFolder, order: BenchmarkOrder) -> RunBudget:
    """With what earlier runs of the folder spent, and the dearest attempt of each policy."""
    rows = read_table(folder).rows
    prices = {row.key: row.price for row in rows}
    dearest = {}
    for key, price in prices.items():
        path = folder.outcomes(key)
        if price is not None and path.is_file():
            costs = [dollars_of(price, outcome) for outcome in OutcomeFile(path).outcomes.values()]
            dearest |= {key: max(known)} if (known := [cost for cost in costs if cost is not None]) else {}
    return RunBudget(order.max_cost, sum(map(_spent, [folder, *map(RunFolder, order.other_suites)])), dearest)


def _spent(folder: RunFolder) -> float:
    """By all runs of a folder."""
    if conditions.read(folder) is None:
        return 0.0
    return sum(cost_by_policy(folder.usage, {row.key: row.price for row in read_table(folder).rows}.get).values())


def _timings(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}


def _time(path: Path, key: str, before: StageCost, now: StageCost) -> None:
    """Sandboxes and engine included, saved as it goes."""
    replace_text(path, json.dumps(_timings(path) | {key: asdict(before + now)}, indent=1) + "\n")
