"""Splits within one project: where there are too few projects to hold whole ones out, modules are held out instead.

A module is a folder of code, or a file where the code lies in few folders. A task belongs to the split of the modules that its reference
changes: held out before validation before training, so no task that is trained on changes a module that is held out. The rest of the
project is trained on, and its files are in every task: a result says how a model does on other parts of a codebase that it knows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

from etude.tasks.protected import is_test
from etude.tasks.splits import CODE, Shares, by_name
from etude.tasks.task import SPLITS, Split

FEW_PROJECTS = 4  # fewer than this: a tenth of them is none, and one in a split measures one author's habits
MOST_HELD_OUT: tuple[Split, ...] = ("heldout", "validation", "train")
LEAST_FOLDERS = 6  # with code in fewer, files are the modules


def modules_of(paths: Iterable[str]) -> dict[str, str]:
    """Of each file of code that is no test, its module."""
    code = [path for path in paths if PurePosixPath(path).suffix in CODE and not is_test(path)]
    folders = {path: PurePosixPath(path).parent.as_posix() for path in code}
    return folders if len(set(folders.values())) >= LEAST_FOLDERS else {path: path for path in code}


def touched(paths: Iterable[str], modules: Mapping[str, str]) -> set[str]:
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


def decided(modules: Collection[str], splits: Mapping[str, Split]) -> tuple[Split, str]:
    """The split of a task that changes these modules, and the first module of it that says so. `modules`: at least one."""
    found = {splits[module] for module in modules}
    chosen: Split = "heldout" if "heldout" in found else "validation" if "validation" in found else "train"
    return chosen, min(module for module in modules if splits[module] == chosen)


def _point(text: str) -> bytes:
    return hashlib.sha256(f"module {text}".encode()).digest()
