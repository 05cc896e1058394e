"""The files of a fake sandbox: a dictionary over frozen layers, as an overlay is. A snapshot freezes the dictionary: O(changes)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass

from etude.sandbox.errors import DiskFull, OutputLimit, UserError
from etude.sandbox.fake.layer import FakeFile, FakeLayer
from etude.sandbox.spec import FileChange, FileEntry


@dataclass
class FakeFiles:
    """`layers`: topmost first. In `upper`, None is a whiteout."""

    workdir: str
    limit_bytes: int
    layers: tuple[FakeLayer, ...] = ()

    def __post_init__(self) -> None:
        self.upper: dict[str, FakeFile | None] = {}
        self._used_bytes = 0

    def resolve(self, path: str) -> str:
        """The path relative to /, by its text, as the wire says."""
        if "\0" in path:
            raise UserError(f"{path!r}: a path can't hold a zero byte")
        full = posixpath.normpath(posixpath.join(self.workdir, path))
        if full.startswith(("/proc", "/dev", "/sys")):
            raise UserError(f"{full}: files of the kernel are not served")
        return full.lstrip("/")

    def find(self, name: str) -> FakeFile | None:
        for level in (self.upper, *self.layers):
            if name in level:
                return level[name]
        return None

    def read(self, path: str, max_bytes: int, offset: int) -> bytes:
        found = self.find(self.resolve(path))
        if found is None:
            raise UserError(f"{path}: no such file")
        if len(found.data) - offset > max_bytes:
            raise OutputLimit(f"{path} has {len(found.data)} bytes, more than {max_bytes} from {offset}")
        return found.data[offset:]

    def write(self, path: str, data: bytes, mode: int | None) -> None:
        name = self.resolve(path)
        before = self.find(name)
        if any(True for _ in self.under(name)):
            raise UserError(f"{path} is a folder")
        kept = self.upper.get(name)
        used = self._used_bytes + len(data) - (len(kept.data) if kept else 0)
        if used > self.limit_bytes:
            raise DiskFull(f"{path}: {used} bytes in all, and the disk holds {self.limit_bytes}")
        self._used_bytes = used
        self.upper[name] = FakeFile(data, mode if mode is not None else before.mode if before else 0o644)

    def remove(self, path: str) -> None:
        name = self.resolve(path)
        gone = [name] if self.find(name) else [*self.under(name)]
        if not gone:
            raise UserError(f"{path}: no such file or folder")
        for one in gone:
            kept = self.upper.pop(one, None)
            self._used_bytes -= len(kept.data) if kept else 0
            if any(one in layer for layer in self.layers):
                self.upper[one] = None

    def names(self) -> list[str]:
        seen: dict[str, bool] = {}
        for level in (self.upper, *self.layers):
            for name, file in level.items():
                seen.setdefault(name, file is not None)
        return sorted(name for name, there in seen.items() if there)

    def under(self, name: str) -> Iterator[str]:
        head = f"{name}/" if name else ""
        return (one for one in self.names() if one.startswith(head) and one != name)

    def entries(self, path: str, recursive: bool, max_entries: int) -> list[FileEntry]:
        base = self.resolve(path)
        found: dict[str, FileEntry] = {}
        for name in self.under(base):
            parts = posixpath.relpath(name, base or ".").split("/")
            for depth in range(1, len(parts)):
                folder = "/".join(parts[:depth])
                found.setdefault(folder, FileEntry(folder, "dir", 0, 0o755))
            file = self.find(name)
            assert file is not None
            found["/".join(parts)] = FileEntry("/".join(parts), "file", len(file.data), file.mode)
        if not found and path not in (".", "", "/") and self.resolve(path) != self.workdir.lstrip("/"):
            raise UserError(f"{path}: no such folder")
        kept = [found[name] for name in sorted(found) if recursive or "/" not in name]
        if len(kept) > max_entries:
            raise OutputLimit(f"{path} has {len(kept)} entries, more than {max_entries}")
        return kept

    def freeze(self) -> tuple[FakeLayer, ...]:
        """What is in the dictionary becomes the topmost layer; without any change nothing does."""
        if self.upper:
            self.layers = (FakeLayer(self.upper), *self.layers)
            self.upper = {}
        return self.layers

    def changes(self, since: tuple[FakeLayer, ...]) -> list[FileChange]:
        """Against another chain of layers."""
        old = FakeFiles(self.workdir, 0, since)
        before, after = set(old.names()), set(self.names())
        found = [FileChange(name, "added") for name in after - before] + [
            FileChange(name, "removed") for name in before - after
        ]
        found += [FileChange(name, "changed") for name in before & after if old.find(name) != self.find(name)]
        return sorted(found, key=lambda change: change.path)
