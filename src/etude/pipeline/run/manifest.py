"""What a run made in its directory: `manifest.jsonl`, from which `etude clean` knows what it may remove.

    {"etude": "run directory", "format": 1}
    {"folder": "sft", "open": true, "foreign": []}         before a stage writes: what it finds there and did not make is foreign
    {"folder": "sft", "files": ["model.safetensors", ...]} after it: the outputs of the stage (`outputs.py`), which are the run's
    {"folder": "sft", "moved_to": "sft.previous"}

Promise: a file that the run did not make is never removed, wherever in the directory it lies. What a person puts into a stage's folder while
the stage runs differs from outputs by its name: one that is named as an output counts as the run's. A directory of an earlier release has
no manifest; there the outputs in folders that are named as stages are the run's.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from etude.core.files import append_lines
from etude.pipeline.run.lock import NAME as LOCK
from etude.pipeline.run.lock import is_lock

# Which files stages write, by their names. What a stage's folder holds besides is a person's, whenever it was put
# there.


NAMES = (
    *("*.json", "*.jsonl", "*.zst", "*.bin", "*.npy", "*.npz", "*.fp", "*.tokens", "*.pt", "*.safetensors", "*.html"),
    # What a checkpoint carries over from the base model.
    *("README.md", "*.jinja", "LICENSE*", "LICENCE*", "NOTICE*", "tokenization_*.py"),
    *("vocab.txt", "merges.txt", "tokenizer.model", "tiktoken.model"),
    # What a kill may leave: files that were to be renamed when they are whole.
    *("*.part", "*.tmp", ".*.json.[0-9]*", ".lock"),
)
# Folders whose files have any name: downloads by their checksum, what an archive held, what vLLM wrote.
FOLDERS = ("downloads/artefacts", "downloads/index", "downloads/locks", "downloads/unpacked", "rl/vllm")


def is_output(folder: str, path: str) -> bool:
    """Whether the stage of `folder` writes a file of that `path` in it."""
    name = PurePosixPath(path).name
    place = f"{folder}/{path}"
    return any(fnmatchcase(name, one) for one in NAMES) or any(place.startswith(f"{one}/") for one in FOLDERS)


NAME, LEDGER = "manifest.jsonl", "ledger.jsonl"
FORMAT = 1
# Files that a run writes next to its stages' folders, and folders that belong to no stage.
FILES = frozenset(
    (NAME, LEDGER, "recipe.toml", "machine.json", "events.jsonl", "stages.json", LOCK, "report.json", "report.html")
)
SHARED = "downloads"  # of the corpus stage, kept when the stage is run again
PREVIOUS, KEPT = ".previous", ".kept"
_MOST_BYTES = 1 << 30  # of a manifest or a ledger: far above what a run writes, and read as a whole


class NotARunDirectory(Exception):
    """A folder holds something and is no run's; nothing in it was touched."""


@dataclass
class Folder:
    """What the manifest says of one folder: while `stage` writes there its outputs but `foreign` are the run's, later `files` alone."""

    stage: str = ""
    foreign: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()

    def owns(self, path: str) -> bool:
        return path not in self.foreign and is_output(self.stage, path) if self.stage else path in self.files


@dataclass
class RunManifest:
    """The manifest of the run directory `run`. Lines are appended and never rewritten; a torn last line counts for nothing."""

    run: Path
    folders: dict[str, Folder] = field(default_factory=dict)
    known: bool = False  # the directory says of itself that it is a run's

    def __post_init__(self) -> None:
        for entry in _lines(self.run / NAME):
            self._apply(entry)

    def begin(self) -> None:
        """Mark the directory as a run's. What a run of an earlier release made there stays the run's."""
        if not self.known:
            places = sorted(self.run.iterdir()) if self.run.is_dir() and is_run_directory(self.run) else []
            stages = [place.name for place in places if _named_as_stage(place.name)]
            lists = [{"folder": name, "files": self._owned(name)} for name in stages]
            self._append({"etude": "run directory", "format": FORMAT}, *lists)

    def open(self, folder: str) -> None:
        """A stage is about to write there."""
        before = self.folders.get(folder)
        foreign = sorted(path for path in files_below(self.run / folder) if before is None or not before.owns(path))
        self._append({"folder": folder, "open": True, "foreign": foreign})

    def close(self, folder: str) -> None:
        """The stage has ended: its outputs that are there now and were not foreign are the run's."""
        self._append({"folder": folder, "files": self._owned(folder)})

    def record_move(self, folder: str, place: str) -> None:
        self._append({"folder": folder, "moved_to": place})

    def owns(self, path: Path) -> bool:
        """Whether the run made this file (`path` relative to the run directory)."""
        top, *rest = path.parts
        if not rest:
            return is_lock(self.run / top) if top == LOCK else top in FILES
        found = self.folders.get(top)
        if found is None:
            return not self.known and _named_as_stage(top) and is_output(top.removesuffix(PREVIOUS), "/".join(rest))
        return found.owns("/".join(rest))

    def _owned(self, folder: str) -> list[str]:
        return sorted(path for path in files_below(self.run / folder) if self.owns(Path(folder, path)))

    def _append(self, *entries: dict[str, Any]) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        lines = b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)
        append_lines(self.run / NAME, lines, durable=True)
        for entry in entries:
            self._apply(entry)

    def _apply(self, entry: dict[str, Any]) -> None:
        if entry.get("etude") == "run directory":
            self.known = True
        name = entry.get("folder")
        if not isinstance(name, str):
            return
        place, foreign, files = entry.get("moved_to"), _paths(entry.get("foreign")), _paths(entry.get("files"))
        if isinstance(place, str):
            moved = self.folders.pop(name, Folder())
            self.folders[place] = moved
        elif entry.get("open") and foreign is not None:
            self.folders[name] = Folder(stage=name, foreign=foreign)
        elif files is not None:
            self.folders[name] = Folder(files=files)


def require_run_directory(folder: Path) -> None:
    """Raises NotARunDirectory for a folder that is neither absent, nor empty, nor a run's."""
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise NotARunDirectory(f"{folder} is no folder; choose another --out")
    strange = sorted(path.name for path in folder.iterdir() if path.name != LOCK or not is_lock(path))
    if odd := _not_regular(folder):
        raise NotARunDirectory(
            f"{folder / odd[0]} is a link or no regular file, and a run would write into it; nothing was changed: move it away, or choose "
            "another folder (--out)"
        )
    if strange and not is_run_directory(folder):
        more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
        raise NotARunDirectory(
            f"{folder} holds {strange[0]}{more} and is no run directory; nothing was changed: choose a folder that is new or empty (--out)"
        )


def is_run_directory(folder: Path) -> bool:
    """By its manifest; of an earlier release, by a ledger that holds the events of stages and nothing else. A run that was killed before its
    first stage has no event, and no file but its own. One whose files are links is none: they would be written through."""
    if _not_regular(folder):
        return False
    if RunManifest(folder).known:
        return True
    ledger = folder / LEDGER
    if (folder / NAME).exists() or not ledger.is_file():
        return False
    entries = _lines(ledger)
    whole = [line for line in _content(ledger).splitlines()[:-1] if line.strip()]
    ours = all(entry.get("event") in ("started", "finished") and "stage" in entry for entry in entries)
    if not entries:
        return not whole and all(path in FILES for path in files_below(folder))
    return ours and len(entries) >= len(whole)


def files_below(folder: Path) -> Iterator[str]:
    """Files and links below a folder, by their path in it; links are not followed."""
    if folder.is_dir() and not folder.is_symlink():
        for place, folders, names in os.walk(folder):
            links = [name for name in folders if os.path.islink(os.path.join(place, name))]
            for name in (*names, *links):
                yield os.path.relpath(os.path.join(place, name), folder)


def split_owned(run: Path, below: Collection[str] | None = None) -> tuple[list[Path], list[Path]]:
    """Files of the directory that the run made, and those that it did not; `below`: of these folders alone."""
    manifest = RunManifest(run)
    ours: list[Path] = []
    others: list[Path] = []
    for name in files_below(run):
        path = Path(name)
        if below is None or path.parts[0] in below and len(path.parts) > 1:
            (ours if manifest.owns(path) else others).append(run / path)
    return ours, others


def remove(run: Path, below: Collection[str] | None = None) -> list[Path]:
    """Removes what the run made, then the folders that are empty; returns what is kept. The manifest goes last."""
    ours, others = split_owned(run, below)
    for path in sorted(ours, key=lambda path: path.name in (NAME, LEDGER)):
        path.unlink(missing_ok=True)
    for top in [run] if below is None else [run / name for name in below]:
        if top.is_dir() and not top.is_symlink():
            for place, _, _ in os.walk(top, topdown=False):
                if not os.listdir(place):
                    os.rmdir(place)
    return others


def set_aside(run: Path, stage: str) -> None:
    """Empties a stage's place. The output of the attempt before is kept once, as `<stage>.previous`: it may be hours of work. What is not the
    run's in an older one stays, under another name."""
    folder = run / stage
    if not folder.exists():
        return
    previous = run / f"{stage}{PREVIOUS}"
    if previous.exists():
        remove(run, [previous.name])
    if previous.exists():
        numbers = (f"{stage}{KEPT}{'' if n == 1 else f'-{n}'}" for n in range(1, 10_000))
        previous.rename(next(run / name for name in numbers if not (run / name).exists()))
    folder.rename(previous)
    RunManifest(run).record_move(stage, previous.name)


def _named_as_stage(name: str) -> bool:
    from etude.pipeline.run.graph import GRAPH, names

    return name.removesuffix(PREVIOUS) in {*names(GRAPH), SHARED}


def _not_regular(folder: Path) -> list[str]:
    """Names of a run's files that something else has there."""
    return [
        name
        for name in sorted(FILES)
        if os.path.lexists(folder / name) and not stat.S_ISREG((folder / name).lstat().st_mode)
    ]


def _paths(found: Any) -> frozenset[str] | None:
    """A list of paths in a manifest, None for anything else."""
    return frozenset(found) if isinstance(found, list) and all(isinstance(path, str) for path in found) else None


def _content(path: Path) -> bytes:
    """A regular file's bytes; none of anything else. Raises NotARunDirectory for more than any run writes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return b""
        if status.st_size > _MOST_BYTES:
            raise NotARunDirectory(f"{path} has {status.st_size:,} bytes, more than any run writes; move it away")
        return file.read(_MOST_BYTES)


def _lines(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for text in _content(path).decode(errors="replace").splitlines():
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            continue  # torn by a kill, or another's
        if isinstance(entry, dict):
            found.append(entry)
    return found
