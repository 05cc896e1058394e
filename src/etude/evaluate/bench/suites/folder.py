"""A suite in a folder: read as it was frozen, or refused by name.

suite.toml     name, version, limits, environment, changelog          tasks/<id>/    Harbor directories
tasks.lock     id -> SHA-256 of its directory                         prices.toml    what tokens cost, and since when
rubrics/       <name>.toml, where tasks are judged                    fingerprints.bin    for corpora to refuse the tasks
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from etude.core.plugins import source_digests
from etude.evaluate.bench import prices
from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.grading.rubric import RubricError, read_rubric
from etude.evaluate.bench.suites import lock, manifest
from etude.evaluate.bench.suites.environment import Equipment
from etude.evaluate.bench.suites.manifest import ManifestSuite
from etude.sandbox.spec import SandboxSpec
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.graders.script import ScriptGrader
from etude.tasks.harbor import HarborError, read_task
from etude.tasks.real.grader import PytestGrader
from etude.tasks.registry import graders_with
from etude.tasks.running.pin import default_cache
from etude.tasks.task import Grader, Task

FINGERPRINTS = "fingerprints.bin"
RUBRICS = "rubrics"
DRAFTS = "drafts.json"  # among them: who drafted them, and what was dropped and why


class FolderSuite(ManifestSuite):
    """Opening reads the small files and sees that every task is there; a task's content is checked when it is asked for."""

    weights: Mapping[str, float] | None = None

    def __init__(self, root: Path, cache: Path | None = None, plugins: Sequence[str] = ()) -> None:
        """`plugins`: graders by import path that tasks may name. Raises SuiteError, PluginError."""
        self.root = root
        self.manifest = manifest.read_manifest(root / manifest.NAME)
        self._lock = lock.read_lock(root)
        self.prices = replace(prices.read_prices(root / prices.NAME), beneath=prices.shipped_prices())
        cache = cache or default_cache()
        self.equipment = Equipment(self.manifest.environment, root, cache)
        own: dict[str, Grader] = {"commands": CommandsGrader(self._fit), "script": ScriptGrader(self._fit)}
        self.graders: Mapping[str, Grader] = {**graders_with(plugins), "pytest": PytestGrader(cache), **own}
        self._plugins = source_digests(plugins)
        self._known: dict[str, Task] = {}

    @property
    def ids(self) -> Sequence[str]:
        return list(self._lock)

    @property
    def lock(self) -> Mapping[str, str]:
        return self._lock

    def _content(self) -> Sequence[object]:
        files = [*sorted((self.root / RUBRICS).glob("*.toml"))]
        if self.manifest.environment.requirements:
            files.append(self.root / self.manifest.environment.requirements)
        rubrics = {str(file.relative_to(self.root)): _digest_of(file) for file in files}
        return [self._lock, rubrics, *([{"plugins": self._plugins}] if self._plugins else [])]

    def task(self, task_id: str) -> Task:
        self._require(task_id, self._lock)
        if task_id not in self._known:
            folder = lock.check_task(self.root, task_id, self._lock)
            try:
                self._known[task_id] = read_task(folder)
            except HarborError as error:
                raise SuiteError(str(error)) from error
            if self._known[task_id].id != task_id:
                raise SuiteError(f"{folder} holds the task {self._known[task_id].id!r}, the list says {task_id!r}")
        return self._known[task_id]

    def verify(self) -> None:
        """Every task is as it was frozen, and every rubric can be asked. Raises TaskChanged, SuiteError."""
        for task_id in self._lock:
            lock.check_task(self.root, task_id, self._lock)
        for file in sorted((self.root / RUBRICS).glob("*.toml")):
            try:
                read_rubric(file)
            except RubricError as error:
                raise SuiteError(str(error)) from error

    def rubric(self, task_id: str) -> Path | None:
        """`rubrics/` has a file for the task, for what its metadata names, for its category, or one for all: the first found."""
        task = self.task(task_id)
        names = [lock.folder_of(self.root, task_id).name, task.metadata.get("rubric"), task.category, "default"]
        files = (self.root / RUBRICS / f"{name}.toml" for name in names if name)
        return next((file for file in files if file.is_file()), None)

    def adapt(self, spec: SandboxSpec) -> SandboxSpec:
        return self._fit(spec, self.task(spec.labels["task"]))

    def _fit(self, spec: SandboxSpec, task: Task) -> SandboxSpec:
        return self.equipment.fit(spec, task.id, task.metadata)


def _digest_of(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise SuiteError(
            f"{file} can't be read ({error.strerror}), and the suite's digest covers it: restore it"
        ) from error
