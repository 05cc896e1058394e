"""Puts projects, installer, generators and sandboxes together for `etude tasks make`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from etude.core.events.finite import dumps
from etude.core.events.stopping import run_async
from etude.evaluate.bench.prices import shipped_prices
from etude.evaluate.bench.runs.cost import dollars_of_usage
from etude.evaluate.bench.runs.folder import replace_text
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.checkpoint_participant import CHECKPOINT
from etude.pipeline.run.install_agents import Agents, crew
from etude.pipeline.run.judges import answering
from etude.pipeline.run.machine import machine
from etude.pipeline.run.meter import Meter, StageCost
from etude.sandbox.fleet.open import open_sandboxes
from etude.tasks.generate.generator import ProofContext
from etude.tasks.generate.generators.commit_environments import MOST, CommitEnvironments
from etude.tasks.generate.generators.registry import with_environments
from etude.tasks.generate.install.installing import Installer
from etude.tasks.generate.protocols import (
    FinalizeFunction,
    GenerationProgress,
    GenerationRequest,
    InstallFunction,
    InstallResult,
    ProgressCallback,
    ProjectDiscarded,
)
from etude.tasks.generate.run.duplicates import DuplicateFilter
from etude.tasks.generate.run.finalization import finalize_task, with_leak_search
from etude.tasks.generate.run.generation_run import GenerationRun
from etude.tasks.generate.run.journal import GenerationJournal
from etude.tasks.generate.run.report import build_report
from etude.tasks.generate.run.split_assignment import SplitAssigner
from etude.tasks.generate.sources.projects import CatalogueProject
from etude.tasks.running.pin import default_cache
from etude.tasks.splits import Shares
from etude.tasks.store.folder import TaskFolder
from etude.tasks.store.overlap import overlap

# `report.json` of task generation, rewritten while it runs: whatever ends it, even a kill, the folder shows what was
# decided by then.


FILE = "report.json"
EVERY_S = 30.0  # a kill loses the account of so much time, and no decision


class MakingReport:
    """Belongs to one run of a making. `spent` is a meter's; what it measures is written down by differences."""

    def __init__(self, folder: Path, decisions: GenerationJournal) -> None:
        self.path, self.decisions = folder / FILE, decisions
        self.faults: list[str] = []
        self._cost = StageCost()
        self._reported = StageCost()
        self._wrote = time.monotonic()

    def add_cost(self, cost: StageCost) -> None:
        self._cost = cost

    def with_writes(self, progress: ProgressCallback) -> ProgressCallback:
        """`progress`, with the report written now and then."""

        def on_progress(so_far: GenerationProgress) -> None:
            progress(so_far)
            if time.monotonic() - self._wrote >= EVERY_S:
                self.write()

        return on_progress

    def write(self, splits: dict[str, Any] | None = None) -> dict[str, Any]:
        """The document, as it lies in the folder from now on. `splits`: what training and measuring share, at the end of a making."""
        now, before = self._cost, self._reported
        self._reported = now
        self.decisions.spend(now.seconds - before.seconds, now.core_seconds - before.core_seconds)
        document = {**build_report(self.decisions, self.faults), "machine": machine(), "splits": splits or {}}
        replace_text(self.path, dumps(document, indent=1) + "\n")
        self._wrote = time.monotonic()
        return document


def installing(listed: Mapping[str, CatalogueProject], installers: Sequence[Installer]) -> InstallFunction:
    """By name, from the cache where it is installed already."""
    by_first = installing_first(installers)
    return lambda name: by_first(listed[name])


def installing_first(installers: Sequence[Installer]) -> Callable[[CatalogueProject], Awaitable[InstallResult]]:
    """By the first of the builders that can, in their order."""

    async def built(wanted: CatalogueProject) -> InstallResult:
        reasons: list[str] = []
        dollars = 0.0
        for one in installers:
            try:
                found = await one.install(wanted)
            except ProjectDiscarded as error:
                reasons.append(f"{one.name}: {error}" if len(installers) > 1 else str(error))
                dollars += error.spent.get("dollars") or 0.0
            else:
                return replace(found, dollars=found.dollars + dollars)
        last = ProjectDiscarded("; ".join(reasons), installers[-1].name)
        last.spent = {"dollars": dollars}
        raise last

    return built


@dataclass(frozen=True)
class PromptWriter:
    """Who words prompts: `[NAME=]URL#MODEL` or `checkpoint:DIR`, as a judge is named."""

    word: str
    key_env: str = "OPENAI_API_KEY"


def make(
    recipe: Recipe,
    order: GenerationRequest,
    listed: Mapping[str, CatalogueProject],
    out: Path,
    progress: ProgressCallback,
    writer: PromptWriter | None = None,
    shares: Shares = Shares(),
    agents: Agents = Agents(),
    commit_environments: int = MOST,
) -> dict[str, Any]:
    """What `account` tells, also written to report.json. `commit_environments`: of a project's commits that `history` may install; 0 for
    none. Raises MakingFault; the report is of what was decided by then."""
    report = MakingReport(out, GenerationJournal(out, order.identity(), order.sources))
    try:
        with Meter(report.add_cost):
            placing = SplitAssigner(TaskFolder(out, make=True), shares, _different(listed, order.projects))
            run_async(
                make_and_write(recipe, order, listed, placing, report, progress, writer, agents, commit_environments)
            )
    finally:
        document = report.write(overlap(TaskFolder(out, make=True)))
    return document


def _different(listed: Mapping[str, CatalogueProject], names: Sequence[str]) -> int:
    """How many projects these are: releases of one count once."""
    return len({listed[name].in_registry if name in listed else name for name in names})


@asynccontextmanager
async def finishing(writer: PromptWriter | None) -> AsyncIterator[FinalizeFunction]:
    """By the rules' words, or a policy's, priced by the program's own list. Raises NoJudge."""
    if writer is None:
        yield finalize_task
        return
    async with answering(writer.word, writer.key_env, "--writer") as policy:
        price = shipped_prices().at(policy.name, date.today())
        own = writer.word.startswith(CHECKPOINT)
        cost = lambda usage: 0.0 if own else dollars_of_usage(price, usage) if price else None
        yield partial(finalize_task, writer=policy, dollars=cost)


async def make_and_write(
    recipe: Recipe,
    order: GenerationRequest,
    listed: Mapping[str, CatalogueProject],
    placing: SplitAssigner,
    report: MakingReport,
    progress: ProgressCallback,
    writer: PromptWriter | None,
    agents: Agents,
    commit_environments: int,
) -> None:
    agents.check()
    pool = await open_sandboxes(recipe.fleet, recipe.sandbox)
    try:
        bench = ProofContext(pool, order.timeout_s)
        async with finishing(writer) as finished, crew(agents, recipe, pool, default_cache()) as found:
            install = placing.wrap_installer(installing(listed, found.installers))
            if commit_environments:
                kept = default_cache() / "environments" / "commits"
                own = CommitEnvironments(installing_first(found.installers), listed, kept, commit_environments)
                order = replace(order, generators=with_environments(order.generators, own))
            finished = DuplicateFilter(placing.folder).wrap_finalizer(
                placing.wrap_finalizer(with_leak_search(finished, pool))
            )
            on_progress = report.with_writes(progress)
            making = GenerationRun(order, install, finished, placing.folder, report.decisions, bench, on_progress)
            making.faults = report.faults
            await making.run()
    finally:
        report.write()  # before anything that could take long, or be killed in its turn
        await pool.close()
