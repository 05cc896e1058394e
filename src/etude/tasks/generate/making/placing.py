"""Every task of a making gets the split of its project, settled when the project is installed, or of the modules that it changes.

What lies in the folder already stays as it is, whatever shares are asked for later: a split that moved would train on what was measured.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from etude.core.fingerprint.project import project_name
from etude.tasks.generate.generator import Installed
from etude.tasks.generate.order import Built, Discarded, Finish, Install
from etude.tasks.split_modules import FEW_PROJECTS, decided, modules_of, split_modules, touched
from etude.tasks.splits import Placed, Shares, Torn, bare_name, marks_of, split_for
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import SPLITS, Split, Task


class Placing:
    """Belongs to one making. Reads the projects of the folder once, at the first install."""

    def __init__(self, folder: TaskFolder, shares: Shares, projects: int | None = None) -> None:
        """`projects`: how many there are, for shares that are of projects or of modules by their number; None: many."""
        self.folder, self.shares = folder, shares
        few = projects is not None and projects < FEW_PROJECTS
        self.by_module = shares.by == "module" or (shares.by == "auto" and few)
        self._parts, self._whole = parts_in(folder)
        self._placed: dict[str, Placed] | None = None
        self._one = asyncio.Lock()

    def installing(self, install: Install) -> Install:
        """Discards a project that is torn between two splits."""

        async def installed(name: str) -> Built:
            built = await install(name)
            try:
                if not self.within(built.installed):
                    await self.place(built.installed)
            except Torn as error:
                raise Discarded(str(error), built.builder) from error
            return built

        return installed

    def finishing(self, finish: Finish) -> Finish:
        async def finished(task: Task, project: Installed) -> Task:
            done = await finish(task, project)
            if not self.within(project):
                return replace(done, split=await self.place(project))
            split, part = self.placed_within(done, project)
            return replace(done, split=split, metadata={**done.metadata, "part": part})

        return finished

    def within(self, project: Installed) -> bool:
        """Whether its tasks are split by module: as those are that lie in the folder already, else as the making says."""
        name = project_name(project.environment.project)
        return name in self._parts or (self.by_module and name not in self._whole)

    def placed_within(self, task: Task, project: Installed) -> tuple[Split, str]:
        """The split of the modules that the task's reference changes, and the module that decided."""
        name = project_name(project.environment.project)
        modules = modules_of(project.files)
        own = touched([*task.solution, *task.metadata.get("removed", ())], modules) or {"."}
        settled = self._parts.setdefault(name, {})
        split, part = decided(own, split_modules(name, {*modules.values(), *own}, self.shares, settled))
        settled[part] = split
        return split, part

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


def parts_in(folder: TaskFolder) -> tuple[dict[str, dict[str, Split]], set[str]]:
    """The modules whose split the folder's tasks settle, by project; and the projects whose tasks are of one split."""
    parts: dict[str, dict[str, Split]] = {}
    whole: set[str] = set()
    for row in folder.rows.values():
        name = project_name(bare_name(row.project)) if row.project else ""
        if row.part:
            parts.setdefault(name, {})[row.part] = row.split  # type: ignore[assignment]
        elif name:
            whole.add(name)
    return parts, whole


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
