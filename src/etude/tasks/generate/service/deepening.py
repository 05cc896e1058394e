"""Makes harder tasks while a run trains, for templates that have none left: bugs combined, larger features, of the same project.

A task is made as `etude tasks make` makes it (proved by running, worded, checked) and lies whole in a folder beside the run before anybody is
told of it. Projects are measured once a run: their own tests, three times, in the sandboxes that the run has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace

from etude.sandbox.errors import Unsupported, UserError
from etude.tasks.environment.environment import KEY, Environment, environment_of
from etude.tasks.errors import TaskError
from etude.tasks.generate.generator import Baseline, Bench, Generator, Installed
from etude.tasks.generate.generators.combined import CombinedBugs
from etude.tasks.generate.generators.registry import GENERATORS
from etude.tasks.generate.install.baseline import baseline
from etude.tasks.generate.making.finishing import finish
from etude.tasks.generate.making.twins import Twins
from etude.tasks.generate.service.siblings import Sized, sized
from etude.tasks.proof import LeftOut
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Task
from etude.tasks.validation.workshop import Candidate

COMBINING = CombinedBugs.name  # asked first: it is sure to be more of the same


class Deepening:
    """Belongs to one run. `tasks`: whose tasks are trained on; `place`: where what is made goes; `most`: candidates built for one task."""

    def __init__(
        self,
        tasks: TaskFolder,
        place: TaskFolder,
        bench: Bench,
        *,
        most: int = 8,
        seed: int = 0,
        generators: Mapping[str, Generator] = GENERATORS,
    ) -> None:
        self.tasks, self.place, self.bench, self.most, self.seed = tasks, place, bench, most, seed
        self.generators = generators
        self.reasons: list[str] = []
        self._installed: dict[str, Installed] = {}
        self._candidates: dict[tuple[str, str], Iterator[Candidate]] = {}
        self._finish = Twins(place).finishing(finish)
        self._one = asyncio.Lock()

    async def harder(self, scheduled: str, least: float) -> Sized | None:
        """A new task of the scheduled one's project and category whose size is `least` or more; None where none of `most` candidates is
        one, with the reasons in `reasons`. Raises InfraError."""
        async with self._one:
            row = self.tasks.rows[scheduled]
            if row.project not in self.tasks.trees.names():
                self.reasons.append(f"{scheduled}: it is of no installed project, so nothing can be made of it")
                return None
            project = await self._project(row.project)
            for _ in range(self.most):
                candidate = await asyncio.to_thread(next, self._listed(project, row.category), None)
                if candidate is None:
                    self.reasons.append(f"{row.project}: no {row.category} candidate is left")
                    return None
                if (found := await self._built(candidate, project, least)) is not None:
                    return found
        return None

    async def _built(self, candidate: Candidate, project: Installed, least: float) -> Sized | None:
        try:
            task = replace(await self._finish(await candidate.build(), project), split="train")
        except (LeftOut, Unsupported, UserError, TaskError) as error:
            self.reasons.append(f"{candidate.id}: {error}")
            return None
        if (size := _size(task)) < least:
            self.reasons.append(f"{candidate.id}: it changes {size:g} lines, and less than {least:g} is not harder")
            return None
        recipe = self.tasks.trees.recipe(project.name)
        return sized(await asyncio.to_thread(self.place.add, task, project, recipe))

    def _listed(self, project: Installed, category: str) -> Iterator[Candidate]:
        """Candidates that neither folder has."""
        key = project.name, category
        if key not in self._candidates:
            self._candidates[key] = self._fresh(project, category)
        return self._candidates[key]

    def _fresh(self, project: Installed, category: str) -> Iterator[Candidate]:
        own = [each for each in self.generators.values() if each.category == category]
        for generator in sorted(own, key=lambda each: each.name != COMBINING):
            if project.environment.language in generator.languages:
                for candidate in generator.candidates(project, self.bench, self.seed):
                    if candidate.id not in self.tasks.rows and candidate.id not in self.place.rows:
                        yield candidate

    async def _project(self, name: str) -> Installed:
        if name not in self._installed:
            about, files = self.tasks.trees.about(name), dict(self.tasks.trees.tree(name))
            environment = environment_of({KEY: about["environment"]})
            assert environment is not None
            measured = await self._measured(environment, files)
            self._installed[name] = Installed(environment, files, measured, about["origin"], about["licence"])
        return self._installed[name]

    async def _measured(self, environment: Environment, files: Mapping[str, str]) -> Baseline:
        found, said = await baseline(environment, files, self.bench.pool)
        if not found.passed:
            raise TaskError(
                f"none of {environment.name}'s tests passes here, so nothing harder can be made of it: {said[-200:]}"
            )
        return found


def _size(task: Task) -> float:
    return float(task.metadata.get("changed", {}).get("lines", 0))
