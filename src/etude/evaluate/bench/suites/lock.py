"""`tasks.lock`: the frozen list of tasks, each with the digest of its directory. What differs from it is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from etude.evaluate.bench.errors import SuiteError, TaskChanged
from etude.tasks.place import TASKS, folder_of

NAME = "tasks.lock"


def digest_of(folder: Path) -> str:
    """SHA-256 over every file's path, whether it can be run, and its content. A link is refused: what it shows may change."""
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        if path.is_symlink():
            raise SuiteError(f"{path} is a link; a task's directory holds plain files alone")
        if path.is_file():
            name = path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape")
            run = b"x" if os.access(path, os.X_OK) else b"-"
            whole.update(b"%d %s %s %s\n" % (len(name), name, run, hashlib.sha256(path.read_bytes()).digest()))
    return whole.hexdigest()


def read_lock(root: Path) -> dict[str, str]:
    """Digests by id. Raises SuiteError for a missing or broken file, and for tasks that it does not name, or that are gone."""
    path = root / NAME
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SuiteError(f"{path} is missing: the suite was never frozen; make it again") from None
    except (ValueError, RecursionError) as error:
        raise SuiteError(f"{path} does not parse: {error}") from error
    if not isinstance(rows, dict) or not rows or not all(isinstance(value, str) for value in rows.values()):
        raise SuiteError(f"{path} must be an object of task id -> SHA-256, with a task at least")
    folders = {folder_of(root, task_id).name: task_id for task_id in rows}
    there = {entry.name for entry in (root / TASKS).iterdir()} if (root / TASKS).is_dir() else set()
    if missing := [folders[name] for name in folders if name not in there]:
        raise SuiteError(
            f"{root}: the directory of task {missing[0]!r} is gone ({len(missing)} of {len(rows)}); restore it"
        )
    if extra := sorted(there - set(folders)):
        raise SuiteError(f"{root / TASKS / extra[0]} is not in {NAME}: the list is frozen; make a new version with it")
    return rows


def check_task(root: Path, task_id: str, lock: Mapping[str, str]) -> Path:
    """The directory of a task that is as it was frozen. Raises TaskChanged."""
    folder = folder_of(root, task_id)
    found = digest_of(folder)
    if found != lock[task_id]:
        raise TaskChanged(
            f"{folder} is not the task {task_id!r} that was frozen: SHA-256 {found[:12]}… instead of {lock[task_id][:12]}…; "
            "restore it, or make a new version: figures of changed tasks don't compare"
        )
    return folder


def write_lock(root: Path, task_ids: list[str]) -> dict[str, str]:
    """Freezes these tasks, in this order."""
    lock = {task_id: digest_of(folder_of(root, task_id)) for task_id in task_ids}
    (root / NAME).write_text(json.dumps(lock, indent=1) + "\n", encoding="utf-8")
    return lock
