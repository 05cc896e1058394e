"""By which code a finding was made: findings of another grader, another cheat or another scan are found again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

ROOMS = ("auditing", "cheats", "checking", "environment", "graders", "running")
MODULES = ("audit", "calls", "faults", "leftovers", "patch", "protected", "registry", "restore", "solved")
CODE = (".py", ".mjs", ".toml")


@cache
def code_version() -> str:
    """SHA-256 of every file that decides what a check finds."""
    root = files("etude.tasks")
    digest = hashlib.sha256()
    for room in ROOMS:
        for path, file in sorted(_below(root / room, room)):
            digest.update(path.encode() + b"\0" + file.read_bytes() + b"\0")
    for module in MODULES:
        digest.update(module.encode() + b"\0" + (root / f"{module}.py").read_bytes() + b"\0")
    return digest.hexdigest()


def key_of(content: str, grader_source: str = "") -> str:
    """Of a task's content by this code; `grader_source` is the digest of a grader by import path."""
    return hashlib.sha256(f"{code_version()} {content}{grader_source and f' {grader_source}'}".encode()).hexdigest()


def keys_of(content: str, grader_sources: Iterable[str]) -> list[str]:
    """All keys under which a finding about the content may be kept: of a built-in grader, and of each of the sources."""
    return [key_of(content), *(key_of(content, source) for source in grader_sources)]


def _below(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _below(entry, f"{path}/{entry.name}")
        elif entry.name.endswith(CODE):
            yield f"{path}/{entry.name}", entry
