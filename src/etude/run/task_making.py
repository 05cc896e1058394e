"""Puts projects, installer, generators and sandboxes together for `etude tasks make`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from etude.bench.runs.cost import dollars_of_usage
from etude.bench.runs.folder import replace_text
from etude.bench.suites.prices import shipped
from etude.factory.generators.generator import Bench
from etude.factory.install.installing import Installer
from etude.factory.making.account import account
from etude.factory.making.decisions import Decisions
from etude.factory.making.finishing import finish
from etude.factory.making.making import Making
from etude.factory.making.order import Built, Finish, Install, Order, Progress
from etude.factory.making.placing import Placing
from etude.factory.sources.projects import Wanted
from etude.fleet.open import open_sandboxes
from etude.recipe.recipe import Recipe
from etude.run.checkpoint_entrant import CHECKPOINT
from etude.run.judges import answering
from etude.run.machine import machine
from etude.run.meter import Cost, Meter
from etude.sandbox.protocol import SandboxPool
from etude.tasks.running.pin import default_cache
from etude.tasks.splits import Shares
from etude.tasks.store.folder import TaskFolder

REPORT = "report.json"


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
    decisions = Decisions(out, order.asked())
    cost = Cost()

    def spent(so_far: Cost) -> None:
        nonlocal cost
        cost = so_far

    faults: list[str] = []
    try:
        with Meter(spent):
            placing = Placing(TaskFolder(out, make=True), shares)
            asyncio.run(_made(recipe, order, listed, placing, decisions, progress, faults, writer))
    finally:
        decisions.spend(cost.seconds, cost.core_seconds)
        document = {**account(decisions, faults), "machine": machine()}
        replace_text(out / REPORT, json.dumps(document, indent=1) + "\n")
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
    decisions: Decisions,
    progress: Progress,
    faults: list[str],
    writer: Writer | None,
) -> None:
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        bench = Bench(pool, order.timeout_s)
        async with finishing(writer) as finished:
            install = placing.installing(installer(listed, pool, default_cache()))
            finished = placing.finishing(finished)
            making = Making(order, install, finished, placing.folder, decisions, bench, progress)
            making.faults = faults
            await making.run()
    finally:
        await pool.close()
