"""Two states of a folder as a patch that `git apply` takes: binary files, modes, links, names of any bytes.

What differs is written out, old and new, into two sibling folders, and git compares those. It is the host's own git, with no
configuration but its defaults, so that nothing in the files (attributes, drivers, hooks) makes it run anything.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

from etude.sandbox.errors import InfraError, OutputLimit, Unsupported
from etude.sandbox.layers.changes import differences
from etude.sandbox.layers.draft import remove_tree
from etude.sandbox.layers.manifest import LayerEntry
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.tree import CREATE, LayerTree
from etude.sandbox.layers.tree_import import copy, write_all
from etude.sandbox.layers.view import LayerView
from etude.sandbox.spec import SandboxSpec

# The files of a new sandbox above its layers, computed from its spec.


INITIAL = "born"  # the digest that represents a spec's own files
_MODE = 0o644
_EMPTY = hashlib.sha256().hexdigest()
_HOSTS = "etc/hosts"  # made empty in an image's root that has none, for ours to be mounted on


def initial_entries(spec: SandboxSpec, below: LayerView) -> list[LayerEntry]:
    found = [
        LayerEntry(path, "file", _MODE, len(data), hashlib.sha256(data).hexdigest())
        for path, data in initial_contents(spec).items()
    ]
    if spec.image and _HOSTS not in below.entries:
        found.append(LayerEntry(_HOSTS, "file", _MODE, 0, _EMPTY))
    return found


def initial_contents(spec: SandboxSpec) -> dict[str, bytes]:
    """By path from the root."""
    return {
        posixpath.normpath(posixpath.join(spec.workdir, path)).lstrip("/"): data for path, data in spec.files.items()
    }


MAX_BYTES = 256 << 20  # of files that differ, old and new together
_PATIENCE_S = 60.0
_OPTIONS = ("--no-index", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
_PREFIXES = ("--src-prefix=", "--dst-prefix=")  # the folders are called a and b already
_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "LANG": "C.UTF-8"}


class FileSources:
    """Where a view's files are: by the digest of their layer, in what was written since, or in the spec."""

    def __init__(self, store: LayerStore, upper: int, spec: SandboxSpec) -> None:
        self._store, self._upper, self._initial = store, upper, initial_contents(spec)
        self._stack = ExitStack()
        self._trees: dict[str, LayerTree] = {}

    def put(self, origin: str, path: str, target: int) -> None:
        """Copy a file's content to a descriptor."""
        if origin == INITIAL:
            write_all(target, self._initial.get(path, b""))
            return
        if origin not in self._trees:
            layer = self._store.layer(origin) / "tree" if len(origin) == 64 else self._upper
            self._trees[origin] = self._stack.enter_context(LayerTree(layer))
        source = self._trees[origin].open(path)
        try:
            copy(source, target)
        finally:
            os.close(source)

    def close(self) -> None:
        self._stack.close()


class PatchFolders:
    """Folders `a` and `b` in a temporary one, which goes with the end of the context."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def write_folders(cls, sources: FileSources, before: LayerView, after: LayerView, workdir: str) -> PatchFolders:
        """What differs below `workdir`, apart from what git keeps for itself. Raises OutputLimit."""
        prefix = workdir.strip("/") + "/"
        paths = [one.path for one in differences(before, after) if one.path.startswith(prefix)]
        paths = [path for path in paths if ".git" not in path.split("/")]
        size = sum(view.entries[path].size for view in (before, after) for path in paths if path in view.entries)
        if size > MAX_BYTES:
            raise OutputLimit(f"what differs below {workdir} is {size} bytes, over {MAX_BYTES}; take get_tar")
        pair = cls(Path(tempfile.mkdtemp(prefix="etude-patch-")))
        try:
            for side, view in (("a", before), ("b", after)):
                (pair._folder / side).mkdir()
                for path in paths:
                    if (entry := view.entries.get(path)) is not None and entry.kind != "dir":
                        place = pair._folder / side / path.removeprefix(prefix)
                        _put(place, entry, view.origin[path], sources)
        except BaseException:
            pair.__exit__()
            raise
        finally:
            sources.close()
        return pair

    async def compare(self) -> bytes:
        git = shutil.which("git")
        if git is None:
            raise Unsupported("git_patch: the host has no git; install it, or take `diff` and `get_tar`")
        words = [git, "diff", *_OPTIONS, *_PREFIXES, "a", "b"]
        try:
            done = await asyncio.to_thread(
                subprocess.run,
                words,
                cwd=self._folder,
                env=_ENVIRONMENT | {"HOME": str(self._folder), "GIT_CEILING_DIRECTORIES": str(self._folder.parent)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            raise OutputLimit(f"git compared for more than {_PATIENCE_S:g} s; take `diff` and `get_tar`") from None
        if done.returncode not in (0, 1):  # 1: they differ
            raise InfraError(f"git diff failed ({done.returncode}): {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def __enter__(self) -> PatchFolders:
        return self

    def __exit__(self, *_: object) -> None:
        remove_tree(self._folder)


def _put(place: Path, entry: LayerEntry, origin: str, sources: FileSources) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if entry.kind == "link":
        place.symlink_to(entry.content)
        return
    fd = os.open(place, CREATE, 0o755 if entry.mode & 0o100 else 0o644)
    try:
        sources.put(origin, entry.path, fd)
    finally:
        os.close(fd)
