"""Assigns a split to every task of a run: the split of its project, settled at the install, or of the modules that it
changes.

Splits that the folder already has never change, whatever shares are requested later: a moved split would train on tasks
that were measured.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from etude.core.fingerprint.project import project_name
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.protocols import FinalizeFunction, InstallFunction, InstallResult, ProjectDiscarded
from etude.tasks.split_modules import FEW_PROJECTS, decided, modules_of, split_modules, touched
from etude.tasks.splits import ProjectSplit, Shares, SplitConflict, bare_name, marks_of, split_for
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import SPLITS, Split, Task


class SplitAssigner:
    """Belongs to one run. Reads the projects of the folder once, at the first install."""

    def __init__(self, folder: TaskFolder, shares: Shares, projects: int | None = None) -> None:
        """`projects`: their number, which decides between shares of projects and of modules; None means many."""
        self.folder, self.shares = folder, shares
        few = projects is not None and projects < FEW_PROJECTS
        self.by_module = shares.by == "module" or (shares.by == "auto" and few)
        self._parts, self._whole = module_splits(folder)
        self._placed: dict[str, ProjectSplit] | None = None
        self._lock = asyncio.Lock()

    def wrap_installer(self, install: InstallFunction) -> InstallFunction:
        """Discards a project whose copies are in two splits."""

        async def install_unless_torn(name: str) -> InstallResult:
            result = await install(name)
            try:
                if not self.is_split_by_module(result.installed):
                    await self.assign(result.installed)
            except SplitConflict as error:
                raise ProjectDiscarded(str(error), result.builder) from error
            return result

        return install_unless_torn

    def wrap_finalizer(self, finish: FinalizeFunction) -> FinalizeFunction:
        async def finalize_with_split(task: Task, project: InstalledProject) -> Task:
            finalized = await finish(task, project)
            if not self.is_split_by_module(project):
                return replace(finalized, split=await self.assign(project))
            split, part = self.assign_by_module(finalized, project)
            return replace(finalized, split=split, metadata={**finalized.metadata, "part": part})

        return finalize_with_split

    def is_split_by_module(self, project: InstalledProject) -> bool:
        """Whether the project's tasks are split by module: as those in the folder are, otherwise as the run says."""
        name = project_name(project.environment.project)
        return name in self._parts or (self.by_module and name not in self._whole)

    def assign_by_module(self, task: Task, project: InstalledProject) -> tuple[Split, str]:
        """The split of the modules that the task's reference changes, and the module that decided it."""
        name = project_name(project.environment.project)
        modules = modules_of(project.files)
        changed = touched([*task.solution, *task.metadata.get("removed", ())], modules) or {"."}
        settled = self._parts.setdefault(name, {})
        split, part = decided(changed, split_modules(name, {*modules.values(), *changed}, self.shares, settled))
        settled[part] = split
        return split, part

    async def assign(self, project: InstalledProject) -> Split:
        """The project's split. Raises SplitConflict, and TaskError for a folder that can't be read."""
        async with self._lock:
            if self._placed is None:
                self._placed = await asyncio.to_thread(project_splits, self.folder)
            known = self._placed.get(project.name)
            if known is None:
                marks = await asyncio.to_thread(marks_of, project.files)
                name = project.environment.project
                split = split_for(name, marks, self._placed.values(), self.shares)
                known = self._placed[project.name] = ProjectSplit(name, split, marks)
            return known.split


def module_splits(folder: TaskFolder) -> tuple[dict[str, dict[str, Split]], set[str]]:
    """The splits of modules that the folder's tasks settle, by project, and the projects whose tasks all have one
    split."""
    parts: dict[str, dict[str, Split]] = {}
    whole: set[str] = set()
    for row in folder.rows.values():
        name = project_name(bare_name(row.project)) if row.project else ""
        if row.part:
            parts.setdefault(name, {})[row.part] = row.split  # type: ignore[assignment]
        elif name:
            whole.add(name)
    return parts, whole


def project_splits(folder: TaskFolder) -> dict[str, ProjectSplit]:
    """The projects of a folder's tasks with their splits.

    A project with tasks of several splits counts as the most protected one: heldout before validation before train.
    """
    placed: dict[str, ProjectSplit] = {}
    trees = set(folder.trees.names())
    splits: dict[str, Split] = {}
    for row in folder.rows.values():
        if row.project:
            earlier = splits.get(row.project, "train")
            splits[row.project] = max(earlier, row.split, key=SPLITS.index)  # type: ignore[arg-type]
    for project, split in splits.items():
        if project in trees:
            name = folder.trees.about(project)["environment"]["project"]
            placed[project] = ProjectSplit(name, split, marks_of(folder.trees.tree(project)))
        else:
            placed[project] = ProjectSplit(bare_name(project), split)
    return placed
