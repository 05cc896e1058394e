"""What went into a library and why the rest did not: a hash-chained record, appended to and never rewritten.

    {"previous": "000…0", "id": "pypi/click@8.1", "origin": "sha256:…", "licences": {"MIT": 61},
     "kept": {"python": [61, 912345]}, "refused": {"generated": 3}, "redactions": {"email": 4}, "reason": "",
     "refused_files": {"start": 0, "bytes": 120, "count": 3, "sha256": "…"}, "digest": "…"}
    {"previous": "<digest of the line before>", "id": "npm/express@5.1", …}

A line's `digest` is the SHA-256 of its bytes before the digest, `previous` among them; so no byte of any line can change unnoticed, and no
line can go, except the last ones: keep `head` elsewhere (the library's index, a report) where that matters. The refused files are in a side
file, one zstd frame of JSONL a project, `zstd -dc` reads it whole; the line holds the frame's place and digest.

The frame is on disk before the line, the line (fsync) before `append` returns. What a kill or a full disk leaves, a torn last line or a frame
without a line, is cut when the manifest is opened next; its project was never promised, and is read again. One writer at a time (a lock).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from etude.core.files import sync_folder
from etude.core.trace.bounded_zstd import decompress

FIRST = "0" * 64  # what the first line has for `previous`
MARK = b', "digest": "'
TAIL_BYTES = len(MARK) + 64 + len(b'"}')
MOST_REFUSED_BYTES = 1 << 30  # of the list of a project's refused files: some millions of paths
LEVEL = 6  # of zstd: lists of paths shrink tenfold at 100 MB/s
READ_BYTES = 1 << 20


class ManifestBroken(Exception):
    """The record isn't what was written; the message names the file, the line and the remedy."""


@dataclass(frozen=True)
class ProjectEntry:
    """One project's account. `kept` is (files, bytes) by language; the rest are counts of files (redactions: of placeholders) by name.
    `records` are its texts in the library, `raw_bytes` what was looked at; `reason` is why the whole project was refused, "" if it was read."""

    id: str
    source: str = ""
    project: str = ""
    version: str = ""
    released: str = ""
    origin: str = ""
    records: int = 0
    raw_bytes: int = 0
    licences: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    redactions: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


class LibraryManifest:
    """Opens, verifies the chain and cuts what an interruption left; raises ManifestBroken, or OSError if another process writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.refused_path = path.with_name(f"{path.stem}.refused.jsonl.zst")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.head = FIRST
        self._done: set[str] = set()
        self._bytes = self._side_bytes = 0
        self._file, self._side = _opened(path), _opened(self.refused_path)
        try:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise OSError(f"{path}: another process is writing this manifest; wait for it or stop it") from error
            self._recover()
        except BaseException:
            self.close()
            raise

    def append(self, entry: ProjectEntry, refused_files: Iterable[tuple[str, str]] = ()) -> None:
        """A project is finished; `refused_files` are its (path, reason). On disk when this returns; on a full disk nothing is left of it."""
        if entry.id in self._done:
            raise ValueError(
                f"{self.path}: project {entry.id!r} is in the manifest already; ask `done()` before reading it again"
            )
        pairs = list(refused_files)
        place = {"start": self._side_bytes, "bytes": 0, "count": len(pairs), "sha256": ""}
        if pairs:
            lines = "".join(
                json.dumps({"id": entry.id, "path": path, "reason": reason}) + "\n" for path, reason in pairs
            )
            frame = zstandard.ZstdCompressor(level=LEVEL).compress(lines.encode())
            _append(self._side, self.refused_path, frame, self._side_bytes)
            place |= {"bytes": len(frame), "sha256": hashlib.sha256(frame).hexdigest()}
        self._line({**asdict(entry), "refused_files": place})
        self._side_bytes += place["bytes"]
        self._done.add(entry.id)

    def done(self) -> frozenset[str]:
        """Ids of the projects that are finished: a resumed build passes them over."""
        return frozenset(self._done)

    def verify(self) -> None:
        """Reads everything again, the side file's frames as well; raises ManifestBroken that names the line."""
        head = FIRST
        for line in _chain(self.path):
            head = line.digest
            self._verify_frame(line.number, line.entry["refused_files"])
        if head != self.head:
            raise ManifestBroken(
                f"{self.path}: ends with another line than this process wrote; restore it from a copy or build again"
            )

    def close(self) -> None:
        """Lets the next writer in."""
        os.close(self._file)
        os.close(self._side)

    def __enter__(self) -> LibraryManifest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _recover(self) -> None:
        for line in _chain(self.path, torn_tail=True):
            self.head, self._bytes = line.digest, line.end
            self._done.add(line.entry["id"])
            place = line.entry["refused_files"]
            self._side_bytes = place["start"] + place["bytes"]
            if os.fstat(self._side).st_size < self._side_bytes:
                raise self._broken(line.number, f"its refused files are missing from {self.refused_path.name}")
        begun = os.pread(self._file, 1 << 10, self._bytes)
        wanted = json.dumps({"previous": self.head})[:-1].encode()
        if not (begun.startswith(wanted) or wanted.startswith(begun)):
            raise ManifestBroken(
                f"{self.path}: what follows {len(self._done)} whole lines was not written by a build; nothing was changed: move the file away, "
                "or build into another folder"
            )
        _cut(self._file, self._bytes)
        _cut(self._side, self._side_bytes)

    def _line(self, content: Mapping[str, Any]) -> None:
        body = json.dumps({"previous": self.head, **content})[:-1].encode()
        digest = hashlib.sha256(body).hexdigest()
        line = body + MARK + digest.encode() + b'"}\n'
        _append(self._file, self.path, line, self._bytes)
        self._bytes += len(line)
        self.head = digest

    def _verify_frame(self, number: int, place: Mapping[str, Any]) -> None:
        digest = hashlib.sha256()
        start, left = place["start"], place["bytes"]
        while left and (chunk := os.pread(self._side, min(left, READ_BYTES), start)):
            digest.update(chunk)
            start, left = start + len(chunk), left - len(chunk)
        if left or (place["bytes"] and digest.hexdigest() != place["sha256"]):
            raise self._broken(number, f"its refused files in {self.refused_path.name} were changed")

    def _broken(self, number: int, what: str) -> ManifestBroken:
        return ManifestBroken(f"{self.path}: line {number}: {what}; restore both files from a copy or build again")


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """What the whole lines say (without the chain's digests), oldest first, for readers; also while a build goes on. Raises ManifestBroken."""
    for line in _chain(path, torn_tail=True):
        yield line.entry


def refused_files(path: Path, entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(path, reason) of the files refused in a project's line."""
    place = entry["refused_files"]
    if not place["bytes"]:
        return []
    with path.with_name(f"{path.stem}.refused.jsonl.zst").open("rb") as file:
        file.seek(place["start"])
        frame = file.read(place["bytes"])
    if hashlib.sha256(frame).hexdigest() != place["sha256"]:
        raise ManifestBroken(
            f"{path}: the refused files of {entry['id']} were changed; restore both files from a copy or build again"
        )
    rows = map(json.loads, decompress(frame, MOST_REFUSED_BYTES).splitlines())
    return [(row["path"], row["reason"]) for row in rows]


class _ManifestLine(NamedTuple):
    """`end` is the place of the byte after it in the file."""

    number: int
    entry: dict[str, Any]
    digest: str
    end: int


def _chain(path: Path, *, torn_tail: bool = False) -> Iterator[_ManifestLine]:
    """Each line, checked; a last one that a kill tore ends it quietly if `torn_tail`. Raises ManifestBroken."""
    head, end = FIRST, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if (
                torn_tail and not line.endswith(b"\n") and not _whole(line[:-1])
            ):  # a kill leaves the beginning of a line only
                return
            if not _whole(line[:-1]) or line[-1:] != b"\n":
                raise ManifestBroken(
                    f"{path}: line {number} was changed (its digest does not fit); restore it from a copy or build again"
                )
            entry = json.loads(line)
            if entry.pop("previous") != head:
                raise ManifestBroken(
                    f"{path}: line {number} does not follow the one before it; restore it from a copy or build again"
                )
            head, end = entry.pop("digest"), end + len(line)
            yield _ManifestLine(number, entry, head, end)


def _whole(line: bytes) -> bool:
    """Whether a line (without its end) is one that was written."""
    body, tail = line[:-TAIL_BYTES], line[-TAIL_BYTES:]
    return len(line) > TAIL_BYTES and tail == MARK + hashlib.sha256(body).hexdigest().encode() + b'"}'


def _opened(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    sync_folder(path.parent)  # a new file's name is on disk too
    return file


def _cut(file: int, end: int) -> None:
    if os.fstat(file).st_size > end:
        os.ftruncate(file, end)
        os.fsync(file)


def _append(file: int, path: Path, data: bytes, at: int) -> None:
    """All of it on disk at `at`, or none."""
    done = 0
    _cut(file, at)  # what an append that failed behind this one left
    try:
        while done < len(data):
            done += os.pwrite(file, data[done:], at + done)
        os.fsync(file)
    except BaseException as error:
        os.ftruncate(file, at)
        if not isinstance(error, OSError):
            raise
        raise OSError(
            error.errno,
            f"{path}: can't append ({error.strerror}); make room and run again, the build goes on from here",
        ) from error
