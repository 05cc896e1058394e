"""Puts projects, installer, generators and sandboxes together for `etude tasks make`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from etude.bench.runs.cost import dollars_of_usage
from etude.bench.suites.prices import shipped
from etude.factory.generators.generator import Bench
from etude.factory.install.installing import Installer
from etude.factory.making.decisions import Decisions
from etude.factory.making.finishing import finish
from etude.factory.making.making import Making
from etude.factory.making.order import Built, Finish, Install, Order, Progress
from etude.factory.making.placing import Placing
from etude.factory.making.twins import Twins
from etude.factory.sources.projects import Wanted
from etude.fleet.open import open_sandboxes
from etude.recipe.recipe import Recipe
from etude.run.checkpoint_entrant import CHECKPOINT
from etude.run.ending import run_to_its_end
from etude.run.judges import answering
from etude.run.making_report import MakingReport
from etude.run.meter import Meter
from etude.sandbox.protocol import SandboxPool
from etude.tasks.running.pin import default_cache
from etude.tasks.splits import Shares
from etude.tasks.store.folder import TaskFolder


def installer(listed: Mapping[str, Wanted], pool: SandboxPool, cache: Path) -> Install:
    """By name, from the cache where it is installed already."""
    found = Installer(pool, cache)

    async def built(name: str) -> Built:
        return await found.install(listed[name])

    return built


@dataclass(frozen=True)
class Writer:
    """Who words prompts: `[NAME=]URL#MODEL` or `checkpoint:DIR`, as a judge is named."""

    word: str
    key_env: str = "OPENAI_API_KEY"


def make(
    recipe: Recipe,
    order: Order,
    listed: Mapping[str, Wanted],
    out: Path,
    progress: Progress,
    writer: Writer | None = None,
    shares: Shares = Shares(),
) -> dict[str, Any]:
    """What `account` tells, also written to report.json. Raises MakingFault; the report is of what was decided by then."""
    report = MakingReport(out, Decisions(out, order.asked()))
    try:
        with Meter(report.spent):
            placing = Placing(TaskFolder(out, make=True), shares)
            run_to_its_end(_made(recipe, order, listed, placing, report, progress, writer))
    finally:
        document = report.write()
    return document


@asynccontextmanager
async def finishing(writer: Writer | None) -> AsyncIterator[Finish]:
    """By the rules' words, or a policy's, priced by the program's own list. Raises NoJudge."""
    if writer is None:
        yield finish
        return
    async with answering(writer.word, writer.key_env, "--writer") as policy:
        price = shipped().at(policy.name, date.today())
        own = writer.word.startswith(CHECKPOINT)
        cost = lambda usage: 0.0 if own else dollars_of_usage(price, usage) if price else None
        yield partial(finish, writer=policy, dollars=cost)


async def _made(
    recipe: Recipe,
    order: Order,
    listed: Mapping[str, Wanted],
    placing: Placing,
    report: MakingReport,
    progress: Progress,
    writer: Writer | None,
) -> None:
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        bench = Bench(pool, order.timeout_s)
        async with finishing(writer) as finished:
            install = placing.installing(installer(listed, pool, default_cache()))
            finished = Twins(placing.folder).finishing(placing.finishing(finished))
            told = report.beside(progress)
            making = Making(order, install, finished, placing.folder, report.decisions, bench, told)
            making.faults = report.faults
            await making.run()
    finally:
        report.write()  # before anything that could take long, or be killed in its turn
        await pool.close()
