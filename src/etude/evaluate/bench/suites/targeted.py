"""Targeted evals as suites: `targeted-<behaviour>` each, under the interface of all suites."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from etude.evaluate.bench.suites.builtin import TaskSuite
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.evaluate.bench.targeted import cases
from etude.evaluate.bench.targeted.grader import NAME, TargetedGrader
from etude.tasks.registry import GRADERS

PREFIX = "targeted-"


class TargetedSuite(TaskSuite):
    """One behaviour's tasks, with the rubrics that belong to them."""

    def rubric(self, task_id: str) -> Path | None:
        name = self.task(task_id).metadata.get("rubric")
        return cases.RUBRICS / f"{name}.toml" if name else None


def names() -> list[str]:
    """The suites that there are."""
    return [f"{PREFIX}{behaviour}" for behaviour in cases.behaviours()]


def targeted_suite(name: str) -> TargetedSuite:
    """The suite of this name (with or without its prefix). Raises CaseError."""
    behaviour = name.removeprefix(PREFIX)
    tasks = {task.id: task for task in cases.cases(behaviour)}
    manifest = SuiteManifest(
        name=f"{PREFIX}{behaviour}",
        version="2",
        released=date(2026, 11, 22),
        description=cases.about(behaviour),
        refresh="cases are added under src/etude/evaluate/bench/targeted/cases; the version rises with them",
        harness=cases.harness(behaviour),
    )
    graders = {**GRADERS, NAME: TargetedGrader()}
    return TargetedSuite(manifest, list(tasks), tasks.__getitem__, graders=graders)
