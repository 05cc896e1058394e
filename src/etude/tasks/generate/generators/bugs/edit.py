"""Edits by byte ranges: what lies outside them stays as it was, byte by byte, which no printing of a tree could promise."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class SourceEdit:
    """Bytes `start` to `end` of `path` become `text`."""

    path: str
    start: int
    end: int
    text: bytes


class OverlappingEdits(ValueError):
    """Two edits of the same bytes: they can't both be made."""


def apply_edits(source: bytes, edits: Iterable[SourceEdit]) -> bytes:
    """The source with all edits of one file made. Raises Overlap."""
    parts: list[bytes] = []
    at = 0
    for edit in sorted(edits):
        if edit.start < at:
            raise OverlappingEdits(f"{edit.path}: an edit begins at byte {edit.start}, the one before ends at {at}")
        parts += [source[at : edit.start], edit.text]
        at = edit.end
    return b"".join([*parts, source[at:]])


def changed_files(files: dict[str, bytes], edits: Iterable[SourceEdit]) -> dict[str, bytes]:
    """The files that the edits touch, as they leave them. Raises Overlap."""
    by_path: dict[str, list[SourceEdit]] = {}
    for edit in edits:
        by_path.setdefault(edit.path, []).append(edit)
    return {path: apply_edits(files[path], own) for path, own in sorted(by_path.items())}
