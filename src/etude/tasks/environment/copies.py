"""Copies of a task's project on this machine: the host's own packages are in every sandbox' sight, and many a library is among them.

Of a file that the reference changes, a copy is a file of the same name and folder that holds lines of the reference which the task's own
workspace lacks. Agents' sandboxes have nothing in its place.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePosixPath

from etude.tasks.task import Task

ROOTS = ("/usr",)  # of the host, as sandboxes without an image see it
LARGEST = 1 << 20
TELLING = 12  # characters of a stripped line
NOTHING = "/dev/null"


def covers(task: Task) -> tuple[tuple[str, str], ...]:
    """Read-only binds that put nothing in the place of copies."""
    found: set[str] = set()
    for path, text in task.solution.items():
        changed = _lines(text) - frozenset().union(*map(_lines, _near(task.files, path)))
        if changed:
            found.update(os.path.dirname(copy) for copy in _named(path) if changed & _lines(_read(copy)))
    if not found:
        return ()
    # All that such a folder has of the project, so that the tasks of a project ask for few different sets: each has a zygote of its own.
    whole = {copy for path in {*task.files, *task.solution} for copy in _named(path)}
    sources = sorted(path for path in whole if os.path.dirname(path) in found)
    return tuple((NOTHING, path) for source in sources for path in (source, *_compiled(source)))


def _compiled(source: str) -> list[str]:
    """What Python keeps next to it: names and documentation strings are in there as well."""
    folder, name = os.path.split(source)
    stem = glob.escape(f"{folder}/__pycache__/{name.removesuffix('.py')}")
    return sorted(glob.glob(f"{stem}.*.pyc")) if name.endswith(".py") else []


def _near(files: Mapping[str, str], path: str) -> Iterable[str]:
    return (text for name, text in files.items() if name.endswith(PurePosixPath(path).suffix))


def _named(path: str) -> tuple[str, ...]:
    """Files of the host that end as the path does: with its folder, or alone where it lies at the root."""
    place = PurePosixPath(path)
    holder = place.parent.name if str(place.parent) not in (".", "src", "lib") else ""
    known = _host().get(place.name, ())
    return tuple(one for one in known if not holder or PurePosixPath(one).parent.name == holder)


@lru_cache(maxsize=1)
def _host() -> dict[str, tuple[str, ...]]:
    """Sources of the host by name; links are left out, what they point to is there itself."""
    found: dict[str, list[str]] = {}
    for root in ROOTS:
        for folder, _, names in os.walk(root):
            for name in names:
                if name.endswith((".py", ".pyi", ".js", ".cjs", ".mjs", ".ts")):
                    path = f"{folder}/{name}"
                    if not os.path.islink(path):
                        found.setdefault(name, []).append(path)
    return {name: tuple(paths) for name, paths in found.items()}


def _read(path: str) -> str:
    try:
        if os.path.getsize(path) > LARGEST:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""  # what can't be read here can't be read inside either


@lru_cache(maxsize=512)
def _lines(text: str) -> frozenset[str]:
    return frozenset(line for line in map(str.strip, text.splitlines()) if len(line) >= TELLING)
