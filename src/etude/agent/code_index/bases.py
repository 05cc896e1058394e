"""Indexes of bases, each built once however many sessions ask for it, in the service's process.

A base is written to a folder of its own and indexed as any folder is, so that it answers as the same files do on a person's disk. The
folder is where the service was configured to keep it; the least recently used goes first.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from etude.agent.code_index.base import Base
from etude.agent.code_index.errors import IndexRefused, NotBuilt
from etude.agent.code_index.index import Index

# Groups in flight ask for a few hundred tasks at once; one that is asked for again after that is built again, in milliseconds.
KEPT = 1024


class Bases:
    """Safe for several threads. A view that a session holds outlives its base's folder: its pages are mapped."""

    def __init__(self, folder: Path, *, kept: int = KEPT) -> None:
        self._folder, self._kept = folder, kept
        self._lock = threading.Lock()
        self._building: dict[str, threading.Lock] = {}
        self._known: OrderedDict[str, Index] = OrderedDict()

    def index(self, digest: str) -> Index:
        """Raises NotBuilt for a base that was never given, or went."""
        with self._lock:
            if digest not in self._known:
                raise NotBuilt(f"no base {digest!r} is here; give its files with `build`")
            self._known.move_to_end(digest)
            return self._known[digest]

    def build(self, files: Mapping[str, str | bytes | None]) -> Index:
        """The index of these files. Raises IndexRefused for paths that lead out."""
        base = Base({_inside(path): _bytes(content) for path, content in files.items() if content is not None})
        with self._lock:
            mine = self._building.setdefault(base.digest, threading.Lock())
        with mine:  # only others with the same files wait for them
            try:
                return self.index(base.digest)
            except NotBuilt:
                index = self._built(base)
                self._keep(base.digest, index)
                return index

    def _built(self, base: Base) -> Index:
        home = self._folder / base.digest
        shutil.rmtree(home, ignore_errors=True)
        tree = home / "tree"
        tree.mkdir(parents=True)
        (home / ".git").touch()  # no ignore file above the tree counts, wherever this folder lies
        for path, data in base.files.items():
            place = os.path.join(tree, path)
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "wb") as file:
                file.write(data)
        index = Index(tree, home / "store")
        index.update(workers=1)
        return index

    def _keep(self, digest: str, index: Index) -> None:
        with self._lock:
            self._known[digest] = index
            self._building.pop(digest, None)
            gone = [self._known.popitem(last=False)[0] for _ in range(max(0, len(self._known) - self._kept))]
        for old in gone:
            shutil.rmtree(self._folder / old)


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise IndexRefused(f"{path!r} names no file of a base; give paths relative to its root")
    return path


def _bytes(content: str | bytes) -> bytes:
    return content.encode(errors="replace") if isinstance(content, str) else content
