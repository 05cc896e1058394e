"""What a run lacks of harder tasks is made while it trains: beside it, one at a time, never waited for.

A making costs minutes of sandboxes; groups go on with the tasks that there are, and a task that was made is served from its end on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from etude.sandbox.errors import InfraError
from etude.tasks.generate.service.deepening import Deepening
from etude.tasks.generate.service.service import Service
from etude.tasks.generate.service.siblings import FolderSiblings
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import Measured, Split, Task, TaskSource


class Grown:
    """A TaskSource: what a run trains on, and what is made for it meanwhile. Only `source` is drawn from."""

    def __init__(self, source: TaskSource, place: TaskFolder) -> None:
        self.source, self.place, self.name = source, place, source.name

    def ids(self, split: Split, *, level: str | None = None) -> Sequence[str]:
        return self.source.ids(split, level=level)

    def signs(self) -> Mapping[str, tuple[float | None, float | None]]:
        return self.source.signs() if isinstance(self.source, Measured) else {}

    def task(self, task_id: str) -> Task:
        return (self.place if task_id in self.place.rows else self.source).task(task_id)


class Growing:
    """Belongs to one run. `look` is called when a group opens; `made` counts the tasks."""

    def __init__(
        self,
        service: Service,
        siblings: FolderSiblings,
        deepening: Deepening,
        note: Callable[[str], None] = lambda told: None,
    ) -> None:
        self.service, self.siblings, self.deepening, self.note = service, siblings, deepening, note
        self.made = 0
        self._making: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Go for what is lacking, if nothing is being made."""
        if self._making is None and self.service.wanted:
            self._making = asyncio.create_task(self._make(next(iter(self.service.wanted))))

    async def close(self) -> None:
        """What was being made is lost; a run that goes on begins it again."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make(self, template: str) -> None:
        scheduled, depth = self.service.wanted[template]
        try:
            found = await self.deepening.harder(scheduled, self.siblings.least(scheduled, depth))
        except InfraError as error:
            self.note(f"a harder task for {template} could not be made: {error}; it is tried again")
            self._making = None
            return
        except Exception as error:  # noqa: BLE001 - whatever a generator meets costs a harder task, never the training
            self.note(f"the making of a harder task for {template} broke: {type(error).__name__}: {error}")
            found = None
        if found is not None:
            self.siblings.add(found)
            self.made += 1
            self.note(f"{template} is mastered and had nothing harder: {found.id} was made")
        else:
            last = "; ".join(" ".join(reason.split())[:120] for reason in self.deepening.reasons[-2:])
            self.note(f"{template} is mastered, and nothing harder could be made of it: {last}")
        self.service.made(template, found.id if found is not None else None)
        self._making = None
        self.look()
