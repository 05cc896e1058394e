"""What `etude run` does: go through the stages that the plan names, and leave a ledger from which any kill is survived.

Promise: run the same command again after Ctrl-C or kill -9 at any point, and it goes on; a finished stage is not run
twice, and a changed setting reruns the stages that read it and what follows them, saying why. Stages that don't read each
other's output run side by side, each in a process of its own with its share of the cores.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from etude.core.events.live import LiveView
from etude.core.events.log import EventLog
from etude.core.events.picture import duration
from etude.core.redact.keys import mask_keys
from etude.pipeline.recipe.read import resolved_toml
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.graph import GRAPH
from etude.pipeline.run.hub_checkpoints import HubCheckpoints, commits, with_folders
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.lock import RunLock
from etude.pipeline.run.machine import machine, versions
from etude.pipeline.run.manifest import SHARED, RunManifest, require_run_directory, set_aside
from etude.pipeline.run.meter import StageCost
from etude.pipeline.run.plan import PlanStep, contents, flat_settings, plan, require_same_sources
from etude.pipeline.run.plugins import plugin_sources
from etude.pipeline.run.process import StageProcess
from etude.pipeline.run.stage import Context, Stage, write_json

FAILED = "failed: "  # begins the last note of a stage that raised an error
FAILURE_CHARS = 2000  # of an error's message in a note


@dataclass(frozen=True)
class Run:
    """A recipe, its directory and its graph. `hub_checkpoints` are those that the recipe names on a model hub, by key."""

    recipe: Recipe
    folder: Path
    graph: tuple[Stage, ...] = GRAPH
    hub_checkpoints: HubCheckpoints = field(default_factory=dict)

    @property
    def located(self) -> Recipe:
        """The recipe as stages read it: checkpoints of the hub by their folders in its cache."""
        return with_folders(self.recipe, self.hub_checkpoints)

    def settings(self, stage: Stage) -> dict[str, Any]:
        """The values that decide a stage's output, with digests of the folders and commits of the hub checkpoints that they name."""
        found = flat_settings(self.recipe.model_dump(mode="json"), stage.reads)
        return found | contents(self.recipe, stage.reads) | commits(self.hub_checkpoints, stage.reads)

    def plan(self, selected: Collection[str]) -> list[PlanStep]:
        """What `execute` would do now. Reads the directory, changes nothing. Raises PlanError, NotARunDirectory."""
        require_run_directory(self.folder)
        ledger = StageLedger(self.folder / "ledger.jsonl")
        steps = plan(self.graph, ledger, self.settings, selected, lambda name: (self.folder / name).is_dir())
        reads = {stage.name: stage.reads for stage in self.graph}
        require_same_sources(steps, ledger, lambda name: plugin_sources(self.recipe, reads[name]))
        return steps

    def execute(self, selected: Collection[str], *, view: bool = True) -> list[PlanStep]:
        """Runs what the plan says and returns it. Raises PlanError, NotARunDirectory, NotALock, RunBusy, or whatever a stage raises."""
        self.plan(selected)  # what can't run is refused before anything is written
        with RunLock(self.folder):
            steps = self.plan(selected)
            RunManifest(self.folder).begin()
            self._describe()
            log = EventLog(self.folder / "events.jsonl")
            with LiveView(self.folder / "events.jsonl") if view else contextlib.nullcontext():
                try:
                    self._take(steps, log)
                finally:
                    log.close()
            return steps

    def describe_kept(self) -> str:
        """What the directory holds of the run's stages, in words."""
        ledger = StageLedger(self.folder / "ledger.jsonl")
        done = [stage.name for stage in self.graph if ledger.finished_attempt(stage.name)]
        begun = [
            stage.name for stage in self.graph if ledger.latest(stage.name) and not ledger.finished_attempt(stage.name)
        ]
        words = [f"{', '.join(done)} {'is' if len(done) == 1 else 'are'} finished"] if done else []
        words += (
            [f"{', '.join(begun)} {'goes' if len(begun) == 1 else 'go'} on from the last checkpoint"] if begun else []
        )
        return f"{self.folder} keeps all that was made: {' and '.join(words) or 'no stage has begun'}"

    def _describe(self) -> None:
        (self.folder / "recipe.toml").write_text(resolved_toml(self.recipe))
        write_json(self.folder / "machine.json", {"machine": machine(), "versions": versions()})

    def _take(self, steps: list[PlanStep], log: EventLog) -> None:
        """Every step as soon as what it reads is there and the machine has room for its share."""
        for step in steps:
            if step.action == "skip":
                log.note(step.stage, step.why)
        waiting = {step.stage: step for step in steps if step.action != "skip"}
        running: dict[str, RunningStage] = {}
        try:
            while waiting or running:
                for stage in startable(self.graph, waiting, running):
                    running[stage.name] = self._start(stage, waiting.pop(stage.name), log)
                connections = {running[name].process.connection: name for name in running}
                for ready in wait(connections):
                    name = connections[ready]  # type: ignore[index]
                    if not self._receive(running[name], log):
                        del running[name]
        finally:
            for found in running.values():
                found.process.stop()

    def _start(self, stage: Stage, step: PlanStep, log: EventLog) -> RunningStage:
        ledger = StageLedger(self.folder / "ledger.jsonl")
        if step.action == "run":
            set_aside(self.folder, stage.name)
            upstream = {name: attempt.id for name in stage.after if (attempt := ledger.latest(name))}
            upstream |= {name: found for name in stage.also if (found := ledger.finished_attempt(name))}
            ledger.start(stage.name, self.settings(stage), upstream, plugin_sources(self.recipe, stage.reads))
        manifest = RunManifest(self.folder)
        for name in self._folders(stage):
            manifest.open(name)
        context = Context(self.located, self.folder, stage.name, log, resumed=step.action == "resume")
        context.folder.mkdir(parents=True, exist_ok=True)
        log.note(stage.name, f"starts: {step.why}")
        log.phase(stage.name, "starting its process")
        earlier = self._cost(stage.name) if step.action == "resume" and not stage.always else StageCost()
        return RunningStage(StageProcess(stage, context), earlier)

    def _receive(self, found: RunningStage, log: EventLog) -> bool:
        """One message of a stage; False once it has ended well. Raises what it raised."""
        process = found.process
        alive = process.receive()
        self._save_cost(process.stage.name, found.cost)
        if alive:
            return True
        if process.error is not None:
            log.note(process.stage.name, f"{FAILED}{mask_keys(str(process.error))[:FAILURE_CHARS]}", ends=True)
            raise process.error
        manifest = RunManifest(self.folder)
        for name in self._folders(process.stage):
            manifest.close(name)
        StageLedger(self.folder / "ledger.jsonl").finish(process.stage.name)
        cost = found.cost
        spent = f"done in {duration(cost.seconds)} ({cost.core_seconds / 60:.1f} core-minutes)"
        log.note(process.stage.name, spent, ends=True)
        return False

    def _folders(self, stage: Stage) -> tuple[str, ...]:
        """Where a stage writes."""
        return (stage.name, SHARED) if stage.name == "corpus" else (stage.name,)

    def _costs(self) -> dict[str, Any]:
        path = self.folder / "stages.json"
        return json.loads(path.read_text()) if path.is_file() else {}

    def _cost(self, stage: str) -> StageCost:
        return StageCost(**self._costs().get(stage, {}))

    def _save_cost(self, stage: str, cost: StageCost) -> None:
        write_json(self.folder / "stages.json", self._costs() | {stage: asdict(cost)})


@dataclass(frozen=True)
class RunningStage:
    """A stage at work, and what its earlier lives cost."""

    process: StageProcess
    earlier: StageCost

    @property
    def cost(self) -> StageCost:
        return self.earlier + self.process.cost


def startable(graph: Iterable[Stage], waiting: Collection[str], running: Mapping[str, RunningStage]) -> list[Stage]:
    """The waiting stages that may start now, in the graph's order: all they read is there, and the shares sum to at most 1."""
    unfinished = {*waiting, *running}
    taken = sum(found.process.stage.share for found in running.values())
    chosen: list[Stage] = []
    for stage in graph:
        blocked = unfinished.intersection((*stage.after, *stage.also))
        if stage.name in waiting and not blocked and taken + stage.share <= 1:
            chosen.append(stage)
            taken += stage.share
    return chosen
