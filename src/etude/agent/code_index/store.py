"""The index on disk: segments that never change, and a manifest that says which of them and which of their files count.

    manifest.json   {"format", "root", "generation", "segments": [{"name", "dead": [file numbers]}], "seen"}, replaced whole, last
    *.seg           columns.py          *.vec   vectors.py          seen-*.json   stamps of files and reasons of skipped ones
    lock            held by the one process that writes

Own files rather than SQLite: a query reads postings as arrays, some 100,000 of a common word at once, from pages that all readers share; row by
row through a database that is too slow, and its full-text tables can't weigh a chunk by its file. What a database would give is kept: a kill
at any point leaves the last manifest and all it names; readers never wait, and one that was overtaken reads the manifest again.
Promise: nothing on the disk can break a reader. What is torn or of another format is left out with a notice, and read again from the sources.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from etude.agent.code_index.columns import read_columns
from etude.agent.code_index.errors import IndexRefused, TornStore
from etude.agent.code_index.segment import IndexSegment
from etude.agent.code_index.view import LivePart, View
from etude.agent.code_index.walk import Stamp
from etude.core.files import replace_file

# Small JSON files with a checksum, replaced whole: a reader gets what was written or learns that it did not.


def write_checked(path: Path, body: dict[str, Any]) -> None:
    """On the disk when this returns; a kill leaves the old file or the new one."""
    text = json.dumps(body, separators=(",", ":"))
    replace_file(path, f"{zlib.crc32(text.encode()):08x} {text}\n", durable=True)


def read_checked(path: Path) -> dict[str, Any]:
    """Raises TornStore for a file that is missing or not as it was written."""
    try:
        check, _, text = path.read_text().partition(" ")
        text = text.removesuffix("\n")
        whole = int(check, 16) == zlib.crc32(text.encode())
    except (OSError, ValueError) as error:
        raise TornStore(f"{path.name}: {error}") from error
    if not whole:
        raise TornStore(f"{path.name} is not as it was written")
    return json.loads(text)


# Raise it when a segment's layout changes, or what analysis makes of a text: older stores are then rebuilt.
FORMAT = 1
MANIFEST = "manifest.json"
Notice = Callable[[str], None]


@dataclass(frozen=True)
class State:
    """What a manifest says. `generation` 0: nothing was ever built."""

    generation: int = 0
    view: View = field(default_factory=View)


@dataclass
class KnownFiles:
    """What the last update knew of each path. A stamp's mtime_ns is -1 where the file was too fresh to be trusted."""

    files: dict[str, Stamp] = field(default_factory=dict)
    skipped: dict[str, tuple[str, int, int]] = field(
        default_factory=dict
    )  # reason, and the stamp if the bytes were read, else 0, 0


def default_folder(root: Path) -> Path:
    """The default folder of an index: in the user's cache, so that a repository stays as it is."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "etude" / "index" / f"{root.name[:40]}-{hashlib.sha256(os.fsencode(root)).hexdigest()[:16]}"


class IndexStore:
    """A store's folder. `notice` is called with what had to be left out."""

    def __init__(self, folder: Path, root: Path, notice: Notice) -> None:
        self.folder, self.root, self._notice = folder, root, notice
        self._open: dict[str, IndexSegment] = {}

    def prepare(self) -> None:
        """Makes the folder; only its owner may look in, since it holds the sources' text."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise IndexRefused(f"{self.folder}: {error.strerror}; name another place with --store") from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One writer at a time; the lock goes with its process, however that ends."""
        self.prepare()
        with open(self.folder / "lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._notice(f"{self.folder}: another process updates this index; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def mark(self) -> tuple[int, int]:
        """Changes with every commit; (0, 0) where there is none."""
        try:
            status = os.stat(self.folder / MANIFEST)
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_mtime_ns

    def read(self) -> State:
        """The last commit, without what is torn."""
        while True:
            mark = self.mark()
            if mark == (0, 0):
                return State()
            try:
                body = self._manifest()
            except TornStore as torn:
                self._notice(f"the index in {self.folder} can't be used ({torn}); it is built again")
                return State()
            parts, lost = self._parts(body)
            if not lost or mark == self.mark():
                break  # else a writer replaced what we were reading
        for torn in lost:
            self._notice(f"a part of the index in {self.folder} is lost ({torn}); its files are read again")
        return State(body["generation"], View(parts))

    def read_known_files(self) -> KnownFiles:
        """What the last update knew; nothing if that is lost, and then every file is read and compared again."""
        while True:
            mark = self.mark()
            try:
                body = read_checked(self.folder / self._manifest()["seen"])
                break
            except TornStore:
                if mark == self.mark():  # else a writer replaced what we were reading
                    return KnownFiles()
        files = {path: Stamp(*stamp) for path, stamp in body["files"].items()}
        return KnownFiles(
            files, {path: (reason, mtime, size) for path, (reason, mtime, size) in body["skipped"].items()}
        )

    def fresh_name(self) -> str:
        """For a segment that no manifest names yet; never used twice, so that a name has one content."""
        return f"{secrets.token_hex(8)}.seg"

    def load(self, name: str) -> IndexSegment:
        """A segment, opened once a process. Raises TornStore."""
        if name not in self._open:
            self._open[name] = IndexSegment(name, read_columns(self.folder / name))
        return self._open[name]

    def commit(self, generation: int, view: View, seen: KnownFiles) -> State:
        """Makes a view of this store's segments the present one."""
        seen_name = f"seen-{secrets.token_hex(8)}.json"
        write_checked(self.folder / seen_name, {"files": seen.files, "skipped": seen.skipped})
        segments = [
            {"name": p.segment.name, "dead": np.flatnonzero(~p.alive_files).tolist()}
            for p in view.parts
            if p.alive_files.any()
        ]
        body = {"format": FORMAT, "root": str(self.root), "generation": generation, "segments": segments}
        write_checked(self.folder / MANIFEST, body | {"seen": seen_name})
        return State(generation, view)

    def sweep(self) -> None:
        """Files of earlier generations and of killed writers go; only while no worker writes. Who has them mapped keeps them."""
        body = self._manifest()
        segments = {entry["name"] for entry in body["segments"]}
        for file in self.folder.iterdir():
            kept = file.name in (MANIFEST, "lock", body["seen"]) or file.name in segments
            if not kept and not (file.suffix == ".vec" and file.name.partition(".seg")[0] + ".seg" in segments):
                file.unlink(missing_ok=True)

    def size(self) -> int:
        """Bytes on the disk."""
        found = 0
        for file in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a writer just removed it
                found += file.stat().st_size
        return found

    def _manifest(self) -> dict:
        body = read_checked(self.folder / MANIFEST)
        if body.get("format") != FORMAT:
            raise TornStore(f"its format is {body.get('format')}, this version writes {FORMAT}")
        if body["root"] != str(self.root):
            raise IndexRefused(
                f"{self.folder} holds the index of {body['root']}, not of {self.root}; name another --store"
            )
        return body

    def _parts(self, body: dict) -> tuple[list[LivePart], list[TornStore]]:
        parts, lost = [], []
        self._open = {
            entry["name"]: self._open[entry["name"]] for entry in body["segments"] if entry["name"] in self._open
        }
        for entry in body["segments"]:
            try:
                segment = self.load(entry["name"])
            except TornStore as torn:
                lost.append(torn)
                continue
            alive = np.ones(segment.files, np.bool_)
            alive[entry["dead"]] = False
            parts.append(LivePart(segment, alive))
        return parts, lost
