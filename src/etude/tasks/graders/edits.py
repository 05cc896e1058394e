"""Variants of a task's files as edits: each says what stood where, so that an edit of another tree is refused, not misplaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from etude.tasks.content import like
from etude.tasks.errors import TaskError

# JSON: {"path", "at" (characters from the start), "old", "new"}.
Edit = Mapping[str, Any]


def apply_edits(files: Mapping[str, str], edits: Sequence[Edit]) -> dict[str, str]:
    """The files with all edits, whose places are those of `files`. Raises TaskError."""
    found = dict(files)
    for edit in sorted(edits, key=lambda one: (one["path"], -one["at"])):
        path, at, old = edit["path"], edit["at"], edit["old"]
        text = found.get(path)
        if text is None or text[at : at + len(old)] != old:
            raise TaskError(f"the edit of {path} at character {at} asks for {old[:60]!r}, which does not stand there")
        found[path] = like(text, text[:at] + edit["new"] + text[at + len(old) :])
    return found


def encode_files(files: Mapping[str, str]) -> dict[str, bytes]:
    return {path: text.encode() for path, text in files.items()}
