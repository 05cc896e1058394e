"""Assigns a split to every task of a run: the split of its project, settled at the install, or of the modules that it
changes.

Splits that the folder already has never change, whatever shares are requested later: a moved split would train on tasks
that were measured.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from etude.core.fingerprint.project import project_name
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.protocols import FinalizeFunction, InstallFunction, InstallResult, ProjectDiscarded
from etude.tasks.protected import is_test
from etude.tasks.splits import CODE, ProjectSplit, Shares, SplitConflict, bare_name, by_name, marks_of, split_for
from etude.tasks.store.folder import TaskFolder
from etude.tasks.task import SPLITS, Split, Task

# Splits within one project: where there are too few projects to hold whole ones out, modules are held out instead.
#
# A module is a folder of code, or a file where the code lies in few folders. A task belongs to the split of the
# modules that its reference changes: held out before validation before training, so no task that is trained on
# changes a module that is held out. The rest of the project is trained on, and its files are in every task: a result
# says how a model does on other parts of a codebase that it knows.


FEW_PROJECTS = 4  # fewer than this: a tenth of them is none, and one in a split measures one author's habits
MOST_HELD_OUT: tuple[Split, ...] = ("heldout", "validation", "train")
LEAST_FOLDERS = 6  # with code in fewer, files are the modules


def modules_of(paths: Iterable[str]) -> dict[str, str]:
    """Of each file of code that is no test, its module."""
    code = [path for path in paths if PurePosixPath(path).suffix in CODE and not is_test(path)]
    folders = {path: PurePosixPath(path).parent.as_posix() for path in code}
    return folders if len(set(folders.values())) >= LEAST_FOLDERS else {path: path for path in code}


def changed_modules(paths: Iterable[str], modules: Mapping[str, str]) -> set[str]:
    """The modules of changed files: of a test, those that it is named after; of any other file, the file itself."""
    found: set[str] = set()
    for path in paths:
        if path in modules:
            found.add(modules[path])
        elif is_test(path) and (named := _named_after(path, modules)):
            found |= named
        else:
            found.add(path)
    return found


def _named_after(path: str, modules: Mapping[str, str]) -> set[str]:
    words = {PurePosixPath(path).stem.split(".")[0].removeprefix("test_").removesuffix("_test").removesuffix("-test")}
    return {module for file, module in modules.items() if PurePosixPath(file).stem in words}


def split_modules(
    name: str, modules: Collection[str], shares: Shares, settled: Mapping[str, Split] | None = None
) -> dict[str, Split]:
    """By a hash of project and module. `settled` ones stay. Where there are three or more, each split with a share has at least one: the
    unsettled module whose hash is least, then the next."""
    found: dict[str, Split] = {module: by_name(f"{name}/{module}", shares) for module in modules}
    found |= settled or {}
    free = sorted((one for one in modules if one not in (settled or {})), key=lambda one: _point(f"{name}/{one}"))
    parts = {"heldout": shares.heldout, "validation": shares.validation, "train": shares.training}
    wanted: list[Split] = [split for split in MOST_HELD_OUT if parts[split] > 0]
    for split in wanted if len(modules) >= len(SPLITS) else ():
        counts = {one: sum(value == one for value in found.values()) for one in SPLITS}
        spare = [one for one in free if counts[found[one]] > 1 or found[one] not in wanted]
        if not counts[split] and spare:
            found[spare[0]] = split
    return found


def decide_split(modules: Collection[str], splits: Mapping[str, Split]) -> tuple[Split, str]:
    """The split of a task that changes these modules, and the first module of it that says so. `modules`: at least one."""
    found = {splits[module] for module in modules}
    chosen: Split = "heldout" if "heldout" in found else "validation" if "validation" in found else "train"
    return chosen, min(module for module in modules if splits[module] == chosen)


def _point(text: str) -> bytes:
    return hashlib.sha256(f"module {text}".encode()).digest()


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
        changed = changed_modules([*task.solution, *task.metadata.get("removed", ())], modules) or {"."}
        settled = self._parts.setdefault(name, {})
        split, part = decide_split(changed, split_modules(name, {*modules.values(), *changed}, self.shares, settled))
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
