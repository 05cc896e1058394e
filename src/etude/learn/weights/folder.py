"""A store's objects as files. Whatever is killed when: a file is whole under its name, or it is not there."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etude.core.files import sync_folder
from etude.learn.weights.errors import MissingShard, StoreTakenOver

PARTIAL = ".partial-"


class FolderBucket:
    """One directory. Writers of one machine (or of a file system with working locks) keep out of each other's way."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def get(self, key: str) -> tuple[bytes, str]:
        try:
            data = (self.root / key).read_bytes()
        except FileNotFoundError as error:
            raise self._missing(key) from error
        return data, hashlib.sha256(data).hexdigest()

    def news(self, key: str, tag: str | None) -> tuple[bytes, str] | None:
        data, found = self.get(key)
        return None if found == tag else (data, found)

    def part(self, key: str, first: int, stop: int) -> bytes:
        try:
            with (self.root / key).open("rb") as file:
                file.seek(first)
                return file.read(stop - first)
        except FileNotFoundError as error:
            raise self._missing(key) from error

    def put(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{PARTIAL}{os.getpid()}-{threading.get_ident()}-{path.name}")
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)

    def replace(self, key: str, data: bytes, tag: str | None) -> str:
        with self._locked():
            try:
                found = self.get(key)[1]
            except MissingShard:
                found = None
            if found != tag:
                raise StoreTakenOver(f"{self.root / key} was written by another publisher since this one read it")
            self.put(key, data)
        return hashlib.sha256(data).hexdigest()

    def folders(self) -> list[str]:
        return [path.name for path in self.root.iterdir() if path.is_dir()] if self.root.is_dir() else []

    def remove(self, folder: str) -> None:
        shutil.rmtree(self.root / folder, ignore_errors=True)

    def _missing(self, key: str) -> MissingShard:
        return MissingShard(f"{key} is not in {self.root}; read the index again or use an anchor")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the file, also if we are killed
            yield
