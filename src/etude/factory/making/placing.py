"""Every task of a making gets the split of its project, settled when the project is installed.

What lies in the folder already stays as it is, whatever shares are asked for later: a split that moved would train on what was measured.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from etude.factory.generators.generator import Installed
from etude.factory.making.order import Built, Discarded, Finish, Install
from etude.tasks.splits import Placed, Shares, Torn, bare_name, marks_of, split_for
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import SPLITS, Split, Task


class Placing:
    """Belongs to one making. Reads the projects of the folder once, at the first install."""

    def __init__(self, folder: TaskFolder, shares: Shares) -> None:
        self.folder, self.shares = folder, shares
        self._placed: dict[str, Placed] | None = None
        self._one = asyncio.Lock()

    def installing(self, install: Install) -> Install:
        """Discards a project that is torn between two splits."""

        async def installed(name: str) -> Built:
            built = await install(name)
            try:
                await self.place(built.installed)
            except Torn as error:
                raise Discarded(str(error), built.builder) from error
            return built

        return installed

    def finishing(self, finish: Finish) -> Finish:
        async def finished(task: Task, project: Installed) -> Task:
            return replace(await finish(task, project), split=await self.place(project))

        return finished

    async def place(self, project: Installed) -> Split:
        """Raises Torn, TaskError for a folder that can't be read."""
        async with self._one:
            if self._placed is None:
                self._placed = await asyncio.to_thread(placed_in, self.folder)
            known = self._placed.get(project.name)
            if known is None:
                marks = await asyncio.to_thread(marks_of, project.files)
                name = project.environment.project
                split = split_for(name, marks, self._placed.values(), self.shares)
                known = self._placed[project.name] = Placed(name, split, marks)
            return known.split


def placed_in(folder: TaskFolder) -> dict[str, Placed]:
    """The projects that a folder's tasks are of. One with tasks of several splits counts as held out the most: as heldout before
    validation before train."""
    found: dict[str, Placed] = {}
    trees = set(folder.trees.names())
    splits: dict[str, Split] = {}
    for row in folder.rows.values():
        if row.project:
            earlier = splits.get(row.project, "train")
            splits[row.project] = max(earlier, row.split, key=SPLITS.index)  # type: ignore[arg-type]
    for project, split in splits.items():
        if project in trees:
            name = folder.trees.about(project)["environment"]["project"]
            found[project] = Placed(name, split, marks_of(folder.trees.tree(project)))
        else:
            found[project] = Placed(bare_name(project), split)
    return found
