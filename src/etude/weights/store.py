"""The weight store as a directory: `anchor-N/` and `delta-N/`, each with shards and a manifest, and one index.

    index.json          {"format": 1, "entries": [{"version", "base", "bytes", "raw_bytes", "sha256", "manifest_sha256"}, ...]}
    anchor-0/           manifest.json, shard-00000.bin, ...
    delta-1/            manifest.json, shard-00000.bin, ...

What the index names is whole: a directory is written under another name, flushed and renamed before the index replaces the
old one, atomically and last. A kill in between leaves files that nobody is told of; the next writer removes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from etude.weights.errors import CorruptShard, MissingShard, Unreachable
from etude.weights.manifest import FORMAT, Manifest
from etude.weights.path import Edge

PARTIAL = ".partial-"


@dataclass(frozen=True)
class Entry:
    """One anchor or delta of the index; `sha256` is that of the state at `version`."""

    version: int
    base: int | None
    bytes: int
    raw_bytes: int
    sha256: str
    manifest_sha256: str

    @property
    def edge(self) -> Edge:
        return Edge(self.version, self.base, self.bytes)

    @property
    def name(self) -> str:
        return self.edge.name


@dataclass(frozen=True)
class Index:
    """All that is published, in the order it was."""

    entries: tuple[Entry, ...] = ()

    @property
    def newest(self) -> int | None:
        return max((entry.version for entry in self.entries), default=None)

    def digest(self, version: int) -> str | None:
        """sha256 of the state at `version`, if an anchor or delta leads there."""
        return next((entry.sha256 for entry in self.entries if entry.version == version), None)

    def entry(self, edge: Edge) -> Entry:
        return next(entry for entry in self.entries if entry.edge == edge)


class WeightStore:
    """One directory. Many may read while one writes."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)

    def index(self) -> Index:
        """What is published; empty if nothing is yet. Raises CorruptShard if the index is not one."""
        path = self.root / "index.json"
        try:
            data = json.loads(path.read_text())
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']}, this reads {FORMAT}")
            return Index(tuple(Entry(**entry) for entry in data["entries"]))
        except FileNotFoundError:
            return Index()
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptShard(
                f"{path} is no index of a weight store ({error}); publish into a new directory"
            ) from error

    def manifest(self, entry: Entry) -> Manifest:
        data = self._read(entry.name, "manifest.json")
        if hashlib.sha256(data).hexdigest() != entry.manifest_sha256:
            raise CorruptShard(f"{entry.name}/manifest.json is not the file that was published; fetch it again")
        return Manifest.from_json(data.decode())

    def shard(self, manifest: Manifest, number: int) -> bytes:
        """The bytes of one shard, unchecked (the codec checks). Raises MissingShard."""
        return self._read(manifest.name, manifest.shards[number].file)

    def write(self, manifest: Manifest, blobs: list[bytes]) -> Entry:
        """Puts an anchor or delta down whole; it counts once `commit` names it. Raises OSError (a full disk) cleanly."""
        partial, final = self.root / f"{PARTIAL}{manifest.name}", self.root / manifest.name
        text = manifest.to_json().encode()
        shutil.rmtree(partial, ignore_errors=True)
        try:
            partial.mkdir(parents=True)
            for shard, blob in zip(manifest.shards, blobs, strict=True):
                _write_flushed(partial / shard.file, blob)
            _write_flushed(partial / "manifest.json", text)
            shutil.rmtree(final, ignore_errors=True)  # left by a writer that was killed before its commit
            partial.rename(final)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        digest = hashlib.sha256(text).hexdigest()
        return Entry(manifest.version, manifest.base, manifest.bytes, manifest.raw_bytes, manifest.sha256, digest)

    def commit(self, index: Index) -> None:
        """Makes `index` the truth, then removes what it no longer names."""
        self.root.mkdir(parents=True, exist_ok=True)
        partial = self.root / f"{PARTIAL}index.json"
        entries = [asdict(entry) for entry in index.entries]
        _write_flushed(partial, json.dumps({"format": FORMAT, "entries": entries}, indent=1).encode())
        partial.replace(self.root / "index.json")
        names = {entry.name for entry in index.entries}
        for path in self.root.iterdir():
            if path.is_dir() and path.name.startswith(("anchor-", "delta-", PARTIAL)) and path.name not in names:
                shutil.rmtree(path, ignore_errors=True)  # a reader may hold it open; the next commit tries again

    def _read(self, folder: str, file: str) -> bytes:
        try:
            return (self.root / folder / file).read_bytes()
        except FileNotFoundError as error:
            raise MissingShard(
                f"{folder}/{file} is not in {self.root}; read the index anew or use an anchor"
            ) from error


def without_after(index: Index, version: int) -> Index:
    """The index as it was when `version` was the newest. Raises Unreachable if it never was."""
    if index.digest(version) is None:
        raise Unreachable(
            f"version {version} is not in the store; it holds {sorted({e.version for e in index.entries})}"
        )
    return replace(index, entries=tuple(entry for entry in index.entries if entry.version <= version))


def _write_flushed(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
