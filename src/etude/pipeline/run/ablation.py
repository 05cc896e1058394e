"""One setting varied, everything else alike: cells that share what the setting does not reach, and a line through what came of them.

    <out>/seed-0/shared/        a run as far as no stage depends on the varied key
    <out>/seed-0/<value>/       a cell: begins with what the shared run made, goes on alone
    <out>/ablation.json         points and fitted line, rewritten after every cell
    <out>/ablation.svg          the same as a figure

Promise: killed anywhere, the same command goes on; a finished cell is not run again. A cell is an ordinary run: `etude report` shows it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from etude.core.events.finite import loads
from etude.evaluate.bench.regression import RegressionLine, TooFewPoints, fit
from etude.evaluate.report.ablation import standalone
from etude.pipeline.recipe.recipe import Recipe
from etude.pipeline.run.ablation_settings import AblationSettings
from etude.pipeline.run.execute import Run
from etude.pipeline.run.graph import GRAPH
from etude.pipeline.run.ledger import StageLedger
from etude.pipeline.run.manifest import RunManifest
from etude.pipeline.run.plan import PlanError, flat_settings
from etude.pipeline.run.pruning import graph_of
from etude.pipeline.run.stage import Stage, StageError, write_json

# A new run that begins with finished stages of another: what they made is linked, not copied, and never written
# again.
#
# Stages write their files whole and replace them by renaming, so a link to a finished file never changes under its
# reader.


def fork(source: Path, target: Path, stages: Collection[str]) -> None:
    """Gives `target` the finished `stages` of the run in `source`, with what the ledger says of them; it must not exist.

    Appears whole or not at all: it is built in a temporary folder and renamed.
    """
    ledger = StageLedger(source / "ledger.jsonl")
    unfinished = [name for name in stages if ledger.finished_attempt(name) is None]
    if unfinished:
        raise StageError(f"{source}: stage {unfinished[0]} is not finished there; run it first")
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    manifest = RunManifest(part)
    manifest.begin()
    for name in stages:
        manifest.open(name)
        shutil.copytree(source / name, part / name, copy_function=os.link)
        manifest.close(name)
    lines = (source / "ledger.jsonl").read_text().splitlines(keepends=True)
    (part / "ledger.jsonl").write_text("".join(line for line in lines if json.loads(line)["stage"] in stages))
    costs = json.loads((source / "stages.json").read_text())
    write_json(part / "stages.json", {name: cost for name, cost in costs.items() if name in stages})
    part.rename(target)


RESULT, FIGURE = "ablation.json", "ablation.svg"
Resolve = Callable[[list[str]], Recipe]  # overrides (`a.b=value`) -> the ablation's recipe with them


@dataclass(frozen=True)
class Cell:
    """One run of the ablation."""

    seed: int
    value: int | float | str

    @property
    def name(self) -> str:
        return f"seed-{self.seed}/{self.value}"


class Ablation:
    """Runs every cell in `folder` and keeps `ablation.json` up to date."""

    def __init__(
        self, settings: AblationSettings, resolve: Resolve, folder: Path, graph: tuple[Stage, ...] = GRAPH
    ) -> None:
        self.settings, self.folder, self._resolve, self._graph = settings, folder, resolve, graph
        graph = self._run(self.cells[0]).graph
        reached = reached_by(settings.key, graph)
        names = [stage.name for stage in graph]
        if settings.until not in names:
            raise PlanError(f"until = {settings.until!r} is no stage of this recipe; they are {', '.join(names)}")
        if not reached:
            raise PlanError(f"key = {settings.key!r} is read by no stage: every cell would be the same")
        self.stages = names[: names.index(settings.until) + 1]
        self.shared = [name for name in self.stages if name not in reached]

    @property
    def cells(self) -> list[Cell]:
        """Seed by seed: a line with an interval is there once two seeds are half through."""
        return [Cell(seed, value) for seed in self.settings.seeds for value in self.settings.values]

    def run(self) -> Iterator[Cell]:
        """Gives each cell when it is done."""
        for cell in self.cells:
            found = self._run(cell)
            if not found.folder.exists() and self.shared:
                common = Run(found.recipe, self.folder / f"seed-{cell.seed}" / "shared", found.graph)
                common.execute(self.shared)
                fork(common.folder, found.folder, self.shared)
            found.execute(self.stages)
            self.save()
            yield cell

    def done(self, cell: Cell) -> bool:
        """Whether every stage of a cell is finished as the ablation says it."""
        run = self._run(cell)
        return all(step.action == "skip" for step in run.plan(self.stages)) if run.folder.exists() else False

    def save(self) -> dict[str, Any]:
        """Writes and returns what is known so far."""
        settings = self.settings
        points = [self._point(cell) for cell in self.cells if self.done(cell)]
        line = _line(points)
        result = {
            "name": settings.name,
            "key": settings.key,
            "cells": len(self.cells),
            "points": points,
            "fit": None if line is None else _line_fields(line),
        }
        write_json(self.folder / RESULT, result)
        if points:
            (self.folder / FIGURE).write_text(standalone(result))
        return result

    def _run(self, cell: Cell) -> Run:
        settings = self.settings
        words = [f"{key}={cell.seed}" for key in settings.seeded]
        recipe = self._resolve([*words, f"{settings.key}={json.dumps(cell.value)}", f"run.name={settings.name}"])
        return Run(recipe, self.folder / cell.name, graph_of(recipe, self._graph))

    def _point(self, cell: Cell) -> dict[str, Any]:
        folder = self.folder / cell.name
        sft, rl = (loads((folder / stage / "summary.json").read_text()) for stage in ("sft", "rl"))
        if sft.get("heldout_loss") is None:
            raise StageError(f"{folder}: its sft stage held no session out; set sft.heldout_share above 0")
        last = rl["curve"][-self.settings.reward_steps :]
        costs = json.loads((folder / "stages.json").read_text())
        return {
            "budget": cell.value,
            "seed": cell.seed,
            "loss": sft["heldout_loss"],
            "reward": mean(point["pass_rate"] for point in last),
            "bits_per_byte": _bits(folder),
            "core_seconds": round(sum(cost["core_seconds"] for cost in costs.values()), 1),
        }


def reached_by(key: str, graph: tuple[Stage, ...]) -> set[str]:
    """Stages whose output depends on a recipe key: those that read it, and all that follow."""
    nested: Any = 0
    for part in reversed(key.split(".")):
        nested = {part: nested}
    reached: set[str] = set()
    for stage in graph:
        if flat_settings(nested, stage.reads) or reached.intersection((*stage.after, *stage.also)):
            reached.add(stage.name)
    return reached


def _bits(folder: Path) -> float | None:
    """Bits a byte on held-out text after the last phase of pretraining that the cell has."""
    for stage in ("long", "short", "base"):
        path = folder / stage / "summary.json"
        if path.is_file():
            return json.loads(path.read_text())["heldout_bits_per_byte"]
    return None


def _line(points: list[dict[str, Any]]) -> RegressionLine | None:
    """None while there are too few points."""
    try:
        return fit([p["loss"] for p in points], [p["reward"] for p in points], [p["seed"] for p in points])
    except TooFewPoints:
        return None


def _line_fields(line: RegressionLine) -> dict[str, Any]:
    found = asdict(line)
    return {
        "slope": found["slope"],
        "ci95": [line.low, line.high],
        "intercept": line.intercept,
        "verdict": {
            "y falls as x rises": "lower loss, higher reward",
            "y rises with x": "lower loss, lower reward",
        }.get(line.verdict, line.verdict),
    }
