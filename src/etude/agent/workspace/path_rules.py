"""Paths that a model writes for another machine, or for a shell, refused with a hint. Pure.

Taken literally, `~/x.txt` would make a folder called `~`, and a person who cleans that up types `rm -r ~`.
"""

from __future__ import annotations

import re


class WorkspaceError(Exception):
    """What the workspace refused, in words for the model."""


MAX_PATH_CHARS = 4096  # PATH_MAX of Linux, in bytes
# What names no file here, and what to write instead.
_FOREIGN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"~(?:$|/)"), "~ is not expanded here; give a path relative to the workspace"),
    (
        re.compile(r"\$(?:HOME|PWD)(?:$|/)|\$\{"),
        "variables are not expanded here; give a path relative to the workspace",
    ),
    (re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|file:/"), "this is a URL; give the path alone"),
    (re.compile(r"[A-Za-z]:[\\/]|\\\\"), "this is a path of another system; give a path relative to the workspace"),
    (re.compile(r".*\\"), "folders are separated by / here, not by a backslash"),
)


def require_length(path: str) -> None:
    """Raises WorkspaceError for a path that is longer than any of a machine, before anything walks it."""
    if len(path) > MAX_PATH_CHARS:
        raise WorkspaceError(
            f"{path[:80]!r}... is no path: it has {len(path):,} characters, and {MAX_PATH_CHARS:,} are the most"
        )


def require_path(path: str) -> None:
    """Refuse what names no file of this machine, with a hint. Raises WorkspaceError."""
    if not path.strip():
        raise WorkspaceError("an empty path; use . for the workspace")
    require_length(path)
    if "\0" in path:
        raise WorkspaceError(f"{path!r} holds a zero byte")
    for pattern, hint in _FOREIGN:
        if pattern.match(path):
            raise WorkspaceError(f"{path}: {hint}")
