"""Builds harder tasks while a run trains, for templates that have none left: combined bugs or larger features of the
same project.

A task is built as `etude tasks make` builds it (proved by running, with prompts, checked). It is stored whole in a
folder next to the run before any caller sees it. The tests of a project are measured once a run: three times, in the
run's sandboxes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace

from etude.sandbox.errors import Unsupported, UserError
from etude.tasks.environment.environment import KEY, Environment, environment_of
from etude.tasks.errors import TaskError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import Baseline, Generator, InstalledProject, ProofContext
from etude.tasks.generate.generators.combined import CombinedBugs
from etude.tasks.generate.generators.registry import GENERATORS
from etude.tasks.generate.harder_tasks.variants import SizedTask, sized_task
from etude.tasks.generate.install.baseline import baseline
from etude.tasks.generate.run.duplicates import DuplicateFilter
from etude.tasks.generate.run.finalization import finalize_task
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

COMBINED_BUGS = CombinedBugs.name  # tried first, because it is certain to give harder tasks of the same kind


class HarderTaskBuilder:
    """Belongs to one run. `tasks`: the folder that is trained on. `output`: the folder of new tasks. `max_candidates`:
    candidates built for one task."""

    def __init__(
        self,
        tasks: TaskFolder,
        output: TaskFolder,
        context: ProofContext,
        *,
        max_candidates: int = 8,
        seed: int = 0,
        generators: Mapping[str, Generator] = GENERATORS,
    ) -> None:
        self.tasks, self.output, self.context, self.max_candidates, self.seed = (
            tasks,
            output,
            context,
            max_candidates,
            seed,
        )
        self.generators = generators
        self.reasons: list[str] = []
        self._installed: dict[str, InstalledProject] = {}
        self._candidates: dict[tuple[str, str], Iterator[Candidate]] = {}
        self._finalize = DuplicateFilter(output).wrap_finalizer(finalize_task)
        self._lock = asyncio.Lock()

    async def build(self, scheduled: str, min_size: float) -> SizedTask | None:
        """A new task of the scheduled one's project and category with size `min_size` or more.

        None where none of `max_candidates` candidates qualifies; `reasons` says why. Raises InfraError.
        """
        async with self._lock:
            row = self.tasks.rows[scheduled]
            if row.project not in self.tasks.trees.names():
                self.reasons.append(f"{scheduled}: its project is not installed, so no harder task can be built")
                return None
            project = await self._load_project(row.project)
            for _ in range(self.max_candidates):
                candidate = await asyncio.to_thread(next, self._project_candidates(project, row.category), None)
                if candidate is None:
                    self.reasons.append(f"{row.project}: no {row.category} candidate is left")
                    return None
                if (task := await self._build_candidate(candidate, project, min_size)) is not None:
                    return task
        return None

    async def _build_candidate(
        self, candidate: Candidate, project: InstalledProject, min_size: float
    ) -> SizedTask | None:
        try:
            task = replace(await self._finalize(await candidate.build(), project), split="train")
        except (CandidateRejected, Unsupported, UserError, TaskError) as error:
            self.reasons.append(f"{candidate.id}: {error}")
            return None
        if (size := _size(task)) < min_size:
            self.reasons.append(
                f"{candidate.id}: it changes {size:g} lines; a harder task changes at least {min_size:g}"
            )
            return None
        recipe = self.tasks.trees.recipe(project.name)
        return sized_task(await asyncio.to_thread(self.output.add, task, project, recipe))

    def _project_candidates(self, project: InstalledProject, category: str) -> Iterator[Candidate]:
        """Candidates that neither folder has."""
        key = project.name, category
        if key not in self._candidates:
            self._candidates[key] = self._list_candidates(project, category)
        return self._candidates[key]

    def _list_candidates(self, project: InstalledProject, category: str) -> Iterator[Candidate]:
        generators = [generator for generator in self.generators.values() if generator.category == category]
        for generator in sorted(generators, key=lambda generator: generator.name != COMBINED_BUGS):
            if project.environment.language in generator.languages:
                for candidate in generator.candidates(project, self.context, self.seed):
                    if candidate.id not in self.tasks.rows and candidate.id not in self.output.rows:
                        yield candidate

    async def _load_project(self, name: str) -> InstalledProject:
        if name not in self._installed:
            about, files = self.tasks.trees.about(name), dict(self.tasks.trees.tree(name))
            environment = environment_of({KEY: about["environment"]})
            assert environment is not None
            measured = await self._measure_baseline(environment, files)
            self._installed[name] = InstalledProject(environment, files, measured, about["origin"], about["licence"])
        return self._installed[name]

    async def _measure_baseline(self, environment: Environment, files: Mapping[str, str]) -> Baseline:
        measured, output = await baseline(environment, files, self.context.pool)
        if not measured.passed:
            raise TaskError(
                f"none of {environment.name}'s tests passes here, so no harder task can be built: {output[-200:]}"
            )
        return measured


def _size(task: Task) -> float:
    return float(task.metadata.get("changed", {}).get("lines", 0))
