"""Generates the harder tasks that a run lacks, in the background and one at a time. The run never waits for them.

A task costs minutes of sandboxes. Groups go on with the tasks that exist, and a new task is served once it is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from etude.sandbox.errors import InfraError
from etude.tasks.generate.harder_tasks.builder import HarderTaskBuilder
from etude.tasks.generate.harder_tasks.selection import HarderTaskSelector
from etude.tasks.generate.harder_tasks.variants import FolderVariants
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import MeasuredSource, Split, Task, TaskSource


class GrowingTaskSource:
    """A TaskSource of the run's tasks and those generated for it. Ids are drawn from `source` only."""

    def __init__(self, source: TaskSource, made: TaskFolder) -> None:
        self.source, self.made, self.name = source, made, source.name

    def ids(self, split: Split, *, level: str | None = None) -> Sequence[str]:
        return self.source.ids(split, level=level)

    def signs(self) -> Mapping[str, tuple[float | None, float | None]]:
        return self.source.signs() if isinstance(self.source, MeasuredSource) else {}

    def task(self, task_id: str) -> Task:
        return (self.made if task_id in self.made.rows else self.source).task(task_id)


class HarderTaskGenerator:
    """Belongs to one run. Call `poll` when a group opens; `made` counts the new tasks."""

    def __init__(
        self,
        selector: HarderTaskSelector,
        variants: FolderVariants,
        builder: HarderTaskBuilder,
        on_note: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.selector, self.variants, self.builder, self.on_note = selector, variants, builder, on_note
        self.made = 0
        self._making: asyncio.Task[None] | None = None

    def poll(self) -> None:
        """Starts on the next request, unless a task is being built."""
        if self._making is None and self.selector.requests:
            self._making = asyncio.create_task(self._make(next(iter(self.selector.requests))))

    async def close(self) -> None:
        """Cancels the task in progress; a resumed run starts it again."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make(self, template: str) -> None:
        scheduled, depth = self.selector.requests[template]
        try:
            task = await self.builder.build(scheduled, self.variants.min_size(scheduled, depth))
        except InfraError as error:
            self.on_note(f"a harder task for {template} could not be built: {error}; the next group tries again")
            self._making = None
            return
        except Exception as error:  # noqa: BLE001 - an error of a generator costs a harder task, never the training
            self.on_note(f"building a harder task for {template} failed: {type(error).__name__}: {error}")
            task = None
        if task is not None:
            self.variants.add(task)
            self.made += 1
            self.on_note(f"{template} is mastered and had no harder task: built {task.id}")
        else:
            last = "; ".join(" ".join(reason.split())[:120] for reason in self.builder.reasons[-2:])
            self.on_note(f"{template} is mastered, and no harder task could be built: {last}")
        self.selector.record_result(template, task.id if task is not None else None)
        self._making = None
        self.poll()
