"""A folder of Harbor directories as what a making fills: OUT/tasks/<id>/, each whole or not there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from etude.factory.generators.generator import Installed
from etude.tasks.harbor import write_task
from etude.tasks.place import TASKS, folder_of
from etude.tasks.task import Task


class HarborShelf:
    """Directories that are renamed into place; what a kill left half done lies under another name and goes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for half in (root / TASKS).glob(".*.part"):
            shutil.rmtree(half)

    def ids(self) -> Collection[str]:
        """Names of the directories; a slash of an id is a hyphen there."""
        return {folder.name for folder in (self.root / TASKS).glob("*") if (folder / "task.toml").is_file()}

    def add(self, task: Task, installed: Installed) -> None:
        """A task of the same id replaces the one that is there. Raises HarborError."""
        place = folder_of(self.root, task.id)
        part = place.with_name(f".{place.name}.{os.getpid()}.part")
        shutil.rmtree(part, ignore_errors=True)
        write_task(task, part)
        if place.exists():  # of a run that was killed before its decision was written
            shutil.rmtree(place)
        part.rename(place)
