"""Stage one by a model: it reads the untouched tree, with tools that read alone, and proposes ten commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

from etude.agent.harness.task_facts import TaskFacts
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.spec import SandboxSpec
from etude.tasks.generate.install.agents.answers import goals
from etude.tasks.generate.install.agents.interview import Model, NoAnswer, interview
from etude.tasks.generate.install.goal import Goal
from etude.tasks.generate.protocols import ProjectDiscarded
from etude.tasks.generate.sources.fetched import Fetched

READ_MEMORY_MB, READ_DISK_MB = 512, 256


class ModelSetter:
    """Asked once for each tree: all builders of a run are held against the same ten."""

    def __init__(self, model: Model, pool: SandboxPool) -> None:
        self.model, self.pool = model, pool
        self._pending: dict[str, asyncio.Task[list[Goal]]] = {}

    async def goals(self, project: Fetched) -> list[Goal]:
        """Raises Discarded where the model has no answer, InfraError."""
        task = self._pending.get(project.digest)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._pending[project.digest] = asyncio.ensure_future(self._goals(project))
        return await task

    async def _goals(self, project: Fetched) -> list[Goal]:
        wanted = project.wanted
        words = (Path(__file__).parent / "goals.md").read_text(encoding="utf-8").strip()
        headline = words.format(project=wanted.name, version=wanted.version, language=wanted.language)
        spec = SandboxSpec(
            files=dict(project.files),
            memory_mb=READ_MEMORY_MB,
            disk_mb=READ_DISK_MB,
            warm_python=False,
            labels={"goals": wanted.id},
        )
        box = await self.pool.create(spec)
        try:
            facts = TaskFacts(f"{wanted.id}.goals", headline)
            return await interview(self.model, box, facts, goals, wanted.id, reads_only=True)
        except NoAnswer as error:
            raise ProjectDiscarded(f"no goals: {error}", self.model.label) from error
        finally:
            await box.kill()
