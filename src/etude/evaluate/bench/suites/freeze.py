"""Writes a suite, whole or not at all: into a temporary folder in the same directory, which is then renamed."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from etude.core.fingerprint.publish import write_fingerprints
from etude.evaluate.bench import prices
from etude.evaluate.bench.errors import SuiteError
from etude.evaluate.bench.prices import Prices
from etude.evaluate.bench.suites import lock, manifest
from etude.evaluate.bench.suites.folder import DRAFTS, FINGERPRINTS, RUBRICS, FolderSuite
from etude.evaluate.bench.suites.manifest import SuiteManifest, SuiteRelease
from etude.tasks.harbor import HarborError, write_task
from etude.tasks.task import Task


def freeze(
    root: Path,
    description: SuiteManifest,
    tasks: Sequence[Task],
    *,
    price_list: Prices = Prices(),
    rubrics: Mapping[str, str] | None = None,
    drafts: Mapping[str, Any] | None = None,
    requirements: Path | None = None,
    projects: Iterable[str] = (),
    after: FolderSuite | None = None,
    retired: Mapping[str, str] | None = None,
) -> FolderSuite:
    """The suite at `root`, which must not exist yet. With `after`, its changelog goes on and says which tasks differ.

    `drafts` says how `rubrics` were made; `retired` why tasks of the version before are gone, by id.

    Raises SuiteError.
    """
    if root.exists():
        raise SuiteError(f"{root} exists, and a suite is frozen: give another folder, or a version of its own")
    if not tasks:
        raise SuiteError(f"{root}: no task was taken, so there is nothing to freeze")
    _check_names(root, [task.id for task in tasks])
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=f".{root.name}.") as scratch:
        made = Path(scratch) / "suite"
        made.mkdir()
        _write_tasks(made, tasks)
        locked = lock.write_lock(made, [task.id for task in tasks])
        if requirements is not None:
            _copy_requirements(requirements, made / (description.environment.requirements or "requirements.txt"))
        _write_rubrics(made, rubrics or {}, drafts)
        prices.write_prices(made / prices.NAME, price_list)
        write_fingerprints(made / FINGERPRINTS, description.name, published_texts(tasks), projects)
        manifest.write_manifest(made / manifest.NAME, _with_change(description, locked, after, retired or {}))
        FolderSuite(made).verify()
        made.rename(root)
    return FolderSuite(root)


def _write_tasks(suite: Path, tasks: Sequence[Task]) -> None:
    for task in tasks:
        try:
            write_task(task, lock.folder_of(suite, task.id))
        except HarborError as error:
            raise SuiteError(str(error)) from error


def _copy_requirements(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, place)


def _write_rubrics(suite: Path, rubrics: Mapping[str, str], drafts: Mapping[str, Any] | None) -> None:
    if rubrics or drafts is not None:
        (suite / RUBRICS).mkdir(exist_ok=True)
    for name, text in rubrics.items():
        (suite / RUBRICS / f"{name}.toml").write_text(text, encoding="utf-8")
    if drafts is not None:
        (suite / RUBRICS / DRAFTS).write_text(json.dumps(drafts, indent=1) + "\n", encoding="utf-8")


def _check_names(root: Path, task_ids: Sequence[str]) -> None:
    folders: dict[str, str] = {}
    for task_id in task_ids:
        name = lock.folder_of(root, task_id).name
        if name in folders:
            raise SuiteError(f"{root}: the tasks {folders[name]!r} and {task_id!r} share a directory; rename one")
        folders[name] = task_id


def published_texts(tasks: Iterable[Task]) -> Iterable[str]:
    """The texts that training must not contain: requests, references and hidden tests."""
    for task in tasks:
        yield task.instruction
        yield from task.solution.values()
        files = task.hidden.get("files")
        yield from files.values() if isinstance(files, dict) else ()


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What became of the tasks from one version to the next, in words."""
    added, gone = [i for i in now if i not in before], [i for i in before if i not in now]
    changed = [i for i in now if i in before and now[i] != before[i]]
    parts = [f"{len(ids)} {word}" for ids, word in ((added, "added"), (gone, "removed"), (changed, "changed")) if ids]
    return ", ".join(parts) or "the same tasks"


def _with_change(
    described: SuiteManifest, locked: Mapping[str, str], after: FolderSuite | None, retired: Mapping[str, str]
) -> SuiteManifest:
    """With the entry of this version on top of the changelog."""
    change = f"{len(locked)} tasks"
    if after is not None:
        if after.version == described.version:
            raise SuiteError(f"{after.root} is version {after.version} already: give the new one another --version")
        change += f"; since {after.version}: {difference(after.lock, locked)}"
    if retired:
        change += f"; retired: {', '.join(sorted(set(retired.values())))}"
    entry = SuiteRelease(version=described.version, date=described.released, change=change, retired=tuple(retired))
    earlier = after.manifest.changelog if after else ()
    return manifest.check(described.model_copy(update={"changelog": (entry, *earlier)}).model_dump(), described.name)
