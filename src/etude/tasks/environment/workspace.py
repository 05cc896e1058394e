"""The sandbox of a task: made for an agent, and read out again when the agent is done.

Of a task with a snapshot only what differs from the snapshot travels: `metadata["overlay"]` names those paths (`changed`, of those `added`,
and `removed`), and what an agent left is found by comparing with the snapshot, not by reading the whole tree. The files that come out are
the same either way.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable, Machines, Sandbox
from etude.sandbox.spec import Network, SandboxSpec
from etude.tasks.content import EXECUTABLE, PLAIN, file_bytes, folders_of, mode_of
from etude.tasks.environment.attached import services_of
from etude.tasks.environment.birth import begin
from etude.tasks.environment.copies import covers
from etude.tasks.environment.environment import environment_of
from etude.tasks.environment.special import place_files, require_folders, targets
from etude.tasks.environment.toolchains import with_toolchain
from etude.tasks.running.pin import default_cache
from etude.tasks.running.pytest_tools import with_pytest
from etude.tasks.task import Task

OVERLAY = "overlay"
MAX_EXPORT_BYTES = 16 << 20
ZONE = {"TZ": "UTC"}  # a task's tests mean the same wherever and whenever they run


def spec_of(task: Task, spec: SandboxSpec, files: dict[str, bytes] | None = None) -> SandboxSpec:
    """`spec` with what the task's environment asks for and its files, or `files` in their stead."""
    wanted = {path: text.encode() for path, text in task.files.items()} if files is None else files
    environment = environment_of(task.metadata)
    if environment is None:
        return replace(spec, files=wanted)
    if environment.snapshot:
        wanted = over_snapshot(task, wanted)
    if environment.tests.runner == "pytest" and not environment.tests.command:
        spec = with_pytest(spec, default_cache())
    spec = replace(spec, env=_joined(environment.env, spec.env))
    spec = spec if environment.image else with_toolchain(spec, environment.language)
    return replace(
        spec,
        files=wanted,
        snapshot=environment.snapshot,
        start_script=environment.start_script or spec.start_script,
        memory_mb=max(spec.memory_mb, environment.memory_mb),
        disk_mb=max(spec.disk_mb, environment.disk_mb),
        pids=max(spec.pids, environment.pids),
        image=environment.image or spec.image,
        warm_python=spec.warm_python and not environment.image,  # an image's interpreter, if it has one, is its own
        workdir=environment.workdir or spec.workdir,
        network=Network("allowlist", hosts=environment.hosts) if environment.hosts else spec.network,
    )


def _joined(env: Mapping[str, str], own_env: Mapping[str, str]) -> dict[str, str]:
    """The environment's variables and a spec's own; where both say where Python looks, the spec's places come first."""
    path = ":".join(one["PYTHONPATH"] for one in (own_env, env) if "PYTHONPATH" in one)
    return {**ZONE, **env, **own_env, **({"PYTHONPATH": path} if path else {})}


def overlay(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, list[str]]:
    """The paths of the task's files that differ from the snapshot: `added` are not in it, `special` are in it with a mode or as links."""
    return {
        "changed": sorted(path for path, text in after.items() if before.get(path) != text),
        "added": sorted(path for path in after if path not in before),
        "removed": sorted(path for path in before if path not in after),
    } | ({"special": special} if (special := sorted(p for p in before if mode_of(before[p]) != PLAIN)) else {})


def over_snapshot(task: Task, files: dict[str, bytes]) -> dict[str, bytes]:
    """Of whole trees what has to be written over the snapshot: what the task changes of it, and what differs from the task."""
    changed = set(task.metadata.get(OVERLAY, {}).get("changed", ()))
    return {
        path: data
        for path, data in files.items()
        if path in changed or path not in task.files or task.files[path].encode() != data  # of another content or mode
    }


def _for_agent(task: Task, spec: SandboxSpec) -> SandboxSpec:
    """With the services it may ask, and without the host's copies of the project. Raises TaskError."""
    environment = environment_of(task.metadata)
    hidden = () if environment is None or spec.image else covers(task)
    return replace(
        spec,
        services=(*spec.services, *services_of(task.metadata)),
        read_only_binds=(*spec.read_only_binds, *hidden),
    )


def missing_files(task: Task, files: dict[str, bytes]) -> list[str]:
    """What the snapshot has and a whole tree does not: to be removed after the birth."""
    over = task.metadata.get(OVERLAY, {})
    added = set(over.get("added", ()))
    return [path for path in [*over.get("removed", ()), *task.files] if path not in files and path not in added]


async def open_workspace(
    task: Task,
    pool: Machines,
    spec: SandboxSpec,
    adapt: Callable[[SandboxSpec], SandboxSpec] = lambda spec: spec,
    files: dict[str, bytes] | None = None,
    *,
    history: bool = False,
) -> Disposable:
    """A sandbox with the task's files, or with `files`. `adapt` sees the spec as it will be. `history`: for an agent, with the caches of
    the project's making gone and one commit (`birth.py`), where the task has an environment, the services it may ask
    (`attached.py`), and no copy of the project from this machine (`copies.py`). Raises UserError, InfraError, TaskError."""
    wanted = spec_of(task, spec, files)
    whole = {path: text.encode() for path, text in task.files.items()} if files is None else files
    require_folders(whole)
    if history:
        wanted = await asyncio.to_thread(_for_agent, task, wanted)
    environment = environment_of(task.metadata)
    special = special_of(task, wanted.files)
    wanted = replace(wanted, files={path: data for path, data in wanted.files.items() if path not in special})
    try:
        sandbox = await pool.create(adapt(wanted))
    except UserError as error:
        if wanted.snapshot and wanted.snapshot in str(error):
            raise UserError(
                f"{error}; `etude tasks prepare DIR` makes what the tasks of a folder start from"
            ) from error
        raise
    if environment is not None or special:
        try:
            for path in missing_files(task, whole) if environment is not None and environment.snapshot else ():
                await sandbox.remove(path)
            await place_files(sandbox, special)
            if history and environment is not None and environment.snapshot:
                await begin(sandbox, task)
        except BaseException:
            await sandbox.kill()
            raise
    return sandbox


async def read_workspace(sandbox: Disposable, task: Task, max_bytes: int = MAX_EXPORT_BYTES) -> dict[str, bytes]:
    """The whole tree that an agent left. Raises UserError for what is too large or can't be read."""
    environment = environment_of(task.metadata)
    if environment is None or not environment.snapshot:
        files = await sandbox.export(max_bytes=max_bytes)
        kept = environment is not None or any(mode_of(text) != PLAIN for text in task.files.values())
        return await _with_modes(sandbox, files) if kept else files
    if not hasattr(sandbox, "diff"):
        raise UserError(
            "this sandbox can't say what changed since its snapshot; take the back end local, or a fleet of it"
        )
    return await _changed(sandbox, task, max_bytes)  # type: ignore[arg-type]


async def _changed(sandbox: Sandbox, task: Task, max_bytes: int) -> dict[str, bytes]:
    """The task's own files, with what differs since the birth laid over them."""
    files = {path: text.encode() for path, text in task.files.items()}
    room = max_bytes
    gone, written = await _differing(sandbox)
    for path in gone:
        for known in [known for known in files if known == path or known.startswith(f"{path}/")]:
            del files[known]
    # What was taken out or placed after the birth, and is there as it was at the birth, is no difference to it, and one to the task.
    later = (set(missing_files(task, files)) - files.keys()) | special_of(task, over_snapshot(task, files)).keys()
    back = [path for path in later - {*written} if not any(path == one or path.startswith(f"{one}/") for one in gone)]
    links: list[str] = []
    for path in [*written, *sorted(back)]:
        try:
            entry = await sandbox.stat(path)
        except UserError:
            files.pop(path, None)  # gone again
            continue
        if entry.kind == "link":
            links.append(path)
            continue
        if entry.kind != "file":
            files.pop(path, None)
            continue
        if entry.size_bytes > room:
            raise UserError(f"{path} has {entry.size_bytes} bytes: what was left is over {max_bytes} bytes")
        data = await sandbox.read(path, max_bytes=room)
        files[path] = file_bytes(data, EXECUTABLE if entry.mode & 0o100 else PLAIN)
        room -= len(data)
    return files | await targets(sandbox, links)


async def _with_modes(sandbox: Disposable, files: dict[str, bytes]) -> dict[str, bytes]:
    """An export, which holds plain files, with their modes and the links."""
    found = dict(files)
    links: list[str] = []
    for entry in await sandbox.list("."):
        if entry.kind == "link":
            links.append(entry.path)
        elif entry.kind == "file" and entry.mode & 0o100 and entry.path in found:
            found[entry.path] = file_bytes(found[entry.path], EXECUTABLE)
    return found | await targets(sandbox, links)


def special_of(task: Task, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files that a sandbox can't be created with: those with a mode or a target, those in the place of one that has, and those where a
    file becomes a folder, or a folder a file."""
    special = {path for path, text in task.files.items() if mode_of(text) != PLAIN}
    special.update(task.metadata.get(OVERLAY, {}).get("special", ()))
    folders = {folder for path in task.files for folder in folders_of(path)}
    in_the_way = special | task.files.keys()  # of a path below, whose folder they are not
    return {
        path: data
        for path, data in files.items()
        if path in special or path in folders or mode_of(data) != PLAIN or not in_the_way.isdisjoint(folders_of(path))
    }


async def _differing(sandbox: Sandbox) -> tuple[list[str], list[str]]:
    """Paths of the workspace that were removed since the birth, and those that were written."""
    root = sandbox.spec.workdir.lstrip("/")
    found: dict[bool, list[str]] = {True: [], False: []}
    for change in await sandbox.diff():
        path = posixpath.relpath(change.path, root)
        if not path.startswith("..") and path != "." and path.split("/")[0] != ".git":
            found[change.kind == "removed"].append(path)
    return found[True], found[False]
