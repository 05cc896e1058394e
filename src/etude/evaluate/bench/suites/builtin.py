"""The suites that come with the program, under the interface of those in folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.prices import Prices, shipped_prices
from etude.evaluate.bench.suites.manifest import ManifestSuite, SuiteEnvironment, SuiteManifest
from etude.sandbox.spec import SandboxSpec
from etude.tasks.real.catalogue import bugs
from etude.tasks.real.grader import PytestGrader
from etude.tasks.real.source import RealPackages
from etude.tasks.registry import GRADERS
from etude.tasks.running.pin import PackagesUnavailable
from etude.tasks.running.pytest_tools import tools, with_pytest
from etude.tasks.task import Grader, Task

EXERCISES = SuiteManifest(
    name="exercises",
    version="1",
    released=date(2026, 11, 22),
    description="generated exercises of the recipe's levels, from held-out functions",
    refresh="another bench.seed draws others; the digest tells which were asked",
)
REAL = SuiteManifest(
    name="real",
    version="1",
    released=date(2026, 11, 22),
    description="bugs put by hand into six released packages",
    refresh="bugs are added under src/etude/tasks/real/bugs; the version rises with them",
    harness={"test_timeout_s": 120.0},
    attempt={"memory_mb": 512},
    environment=SuiteEnvironment(pytest=True),
)


class TaskSuite(ManifestSuite):
    """Tasks that a program generates each time, the same for the same digest."""

    prices = Prices(beneath=shipped_prices())

    def __init__(
        self,
        manifest: SuiteManifest,
        ids: Sequence[str],
        make: Callable[[str], Task],
        *,
        graders: Mapping[str, Grader] = GRADERS,
        adapt: Callable[[SandboxSpec], SandboxSpec] = lambda spec: spec,
        weights: Mapping[str, float] | None = None,
        content: Callable[[], object] | None = None,
    ) -> None:
        self.manifest, self.ids, self.graders, self.weights = manifest, ids, graders, weights
        self._make, self._adapt, self._made_of = make, adapt, content
        self._known: dict[str, Task] = {}

    def _content(self) -> Sequence[object]:
        """Of the tasks themselves, or of what they are made from where that is cheaper."""
        return [
            list(self.ids),
            self._made_of() if self._made_of else [asdict(self.task(task_id)) for task_id in self.ids],
        ]

    def task(self, task_id: str) -> Task:
        self._require(task_id, self.ids)
        if task_id not in self._known:
            try:
                self._known[task_id] = self._make(task_id)
            except PackagesUnavailable as error:
                raise SuiteError(f"task {task_id}: {error}") from error
        return self._known[task_id]

    def rubric(self, task_id: str) -> Path | None:
        return None

    def adapt(self, spec: SandboxSpec) -> SandboxSpec:
        return self._adapt(spec)


def exercises(tasks: Sequence[Task], weights: Mapping[str, float]) -> TaskSuite:
    """Tasks that were chosen from a recipe, weighed by level as it mixes them."""
    by_id = {task.id: task for task in tasks}
    return TaskSuite(EXERCISES, list(by_id), by_id.__getitem__, weights=weights)


def real(cache: Path, count: int | None = None) -> TaskSuite:
    """Bugs in real packages, which are downloaded when a task is first asked for."""
    source = RealPackages(cache)
    ids = source.ids("heldout")[:count]

    def content() -> object:
        return [[asdict(bugs()[task_id]) for task_id in ids], [asdict(pin) for pin in tools()]]

    return TaskSuite(
        REAL,
        ids,
        source.task,
        graders={"pytest": PytestGrader(cache)},
        adapt=lambda spec: with_pytest(spec, cache),
        content=content,
    )
