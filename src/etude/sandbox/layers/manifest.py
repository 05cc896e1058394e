"""What a layer holds, as a list with a digest: the same files give the same digest, independent of their owner and time.

A line is one entry, in the order of its path's bytes: path, kind, and what the kind has. Times of change are no part of it (they are kept
separately, for `make`), nor are owners (all files of a layer have one). The digest is the sha256 of the lines.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from typing import Literal

_LINE = json.JSONEncoder(separators=(",", ":"))

Kind = Literal["file", "dir", "link", "gone"]


@dataclass(frozen=True, slots=True)
class LayerEntry:
    """One path of a layer. `gone` hides what lower layers have there; an `opaque` folder hides what they have below it."""

    path: str  # relative, without dots; what is not UTF-8 as lone surrogates (PEP 383)
    kind: Kind
    mode: int = 0
    size: int = 0
    content: str = ""  # sha256 of a file, the target of a link
    opaque: bool = False
    attributes: tuple[tuple[str, str], ...] = ()  # user.* of files and folders; the value in hexadecimal

    def same_as(self, other: LayerEntry) -> bool:
        """The same to who looks at it, wherever it lies in a chain."""
        mine = (self.kind, self.mode, self.size, self.content, self.attributes)
        return mine == (other.kind, other.mode, other.size, other.content, other.attributes)

    def same_in(self, others: dict[str, LayerEntry]) -> bool:
        there = others.get(self.path)
        return there is not None and self.same_as(there)

    def row(self) -> list[object]:
        row: list[object] = [self.path, self.kind]
        if self.kind == "file":
            row += [self.mode, self.size, self.content]
        elif self.kind == "dir":
            row += [self.mode, int(self.opaque)]
        elif self.kind == "link":
            row += [self.content]
        return [*row, dict(self.attributes)] if self.attributes else row


@dataclass(frozen=True)
class LayerManifest:
    """All entries of a layer, sorted."""

    entries: tuple[LayerEntry, ...]

    @classmethod
    def of(cls, entries: list[LayerEntry]) -> LayerManifest:
        return cls(tuple(sorted(entries, key=lambda entry: os.fsencode(entry.path))))

    @classmethod
    def parse(cls, text: bytes) -> LayerManifest:
        """Of a text whose digest was compared. Raises ValueError for what is no manifest."""
        return cls(tuple(_entry(row) for row in map(json.loads, text.splitlines())))

    def text(self) -> bytes:
        return "".join(_LINE.encode(entry.row()) + "\n" for entry in self.entries).encode()

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text()).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(entry.size for entry in self.entries)


def _entry(row: list) -> LayerEntry:
    path, kind, *rest = row
    attributes = tuple(sorted(rest.pop().items())) if rest and isinstance(rest[-1], dict) else ()
    if kind == "file":
        mode, size, content = rest
        return LayerEntry(path, "file", mode, size, content, attributes=attributes)
    if kind == "dir":
        mode, opaque = rest
        return LayerEntry(path, "dir", mode, opaque=bool(opaque), attributes=attributes)
    if kind == "link":
        (content,) = rest
        return LayerEntry(path, "link", content=content)
    if kind != "gone" or rest:
        raise ValueError(f"no such entry: {row!r}")
    return LayerEntry(path, "gone")
