"""What a bench asks of a suite, whether it lies in a folder or is made on the spot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from etude.evaluate.bench.prices import Prices
from etude.evaluate.bench.suites.manifest import SuiteManifest
from etude.sandbox.spec import SandboxSpec
from etude.tasks.task import Grader, Task


class Suite(Protocol):
    """A frozen list of tasks under a name and a version.

    Figures compare only within one `digest`: it covers name, version, tasks, limits and environment, not prices and words.
    Graders come with the suite (`Setup.graders`), and so does what sandboxes need in addition to the files (`Setup.adapt`, which reads
    the label `task` that every attempt puts on its sandbox).
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def digest(self) -> str: ...
    @property
    def ids(self) -> Sequence[str]:
        """In their fixed order."""
        ...

    @property
    def manifest(self) -> SuiteManifest:
        """Limits (`limited`, `attempts`), description, changelog."""
        ...

    @property
    def prices(self) -> Prices: ...
    @property
    def weights(self) -> Mapping[str, float] | None:
        """How the headline average weighs levels; None: every task counts alike."""
        ...

    @property
    def graders(self) -> Mapping[str, Grader]: ...
    def task(self, task_id: str) -> Task:
        """Raises KeyError for an id that is not in `ids`, SuiteError for a task that can't be had as it was frozen."""
        ...

    def rubric(self, task_id: str) -> Path | None:
        """The rubric file by which the task is judged in addition to its tests; None: tests alone."""
        ...

    def adapt(self, spec: SandboxSpec) -> SandboxSpec:
        """`spec` with all that the task's sandbox needs. Raises Unsupported for an environment that can't be had here."""
        ...


def label(suite: Suite) -> str:
    """How a report names a suite: versions don't compare, so a name alone says too little."""
    return f"{suite.name}@{suite.version}"
