"""Where this machine's control groups are mounted, and where the group of this process shows there. Read, not guessed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Hierarchy:
    """`controllers`: of v1, what it was mounted with; v2 says in its files what each group has."""

    version: int
    controllers: frozenset[str]
    top: Path
    own: Path


def mounted_hierarchies(mounts: Path = _MOUNTS, own: Path = _OWN) -> list[Hierarchy]:
    """Those in which the group of this process is in sight; none where nothing is mounted or nothing can be read."""
    try:
        groups, lines = _own_groups(own.read_text()), mounts.read_text().splitlines()
    except OSError:
        return []
    found: list[Hierarchy] = []
    for line in lines:
        words, _, rest = line.partition(" - ")
        kind, _, options = rest.partition(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, target = (_unescaped(word) for word in words.split()[3:5])
        controllers = frozenset(options.split()[-1].split(",")) if kind == "cgroup" else frozenset[str]()
        here = (
            groups.get("") if kind == "cgroup2" else next((groups[one] for one in controllers if one in groups), None)
        )
        if here is None:
            continue
        below = os.path.relpath(here, root)
        if below.split("/")[0] != "..":
            found.append(Hierarchy(2 if kind == "cgroup2" else 1, controllers, Path(target), Path(target, below)))
    return found


def _own_groups(text: str) -> dict[str, str]:
    """Controller -> group of this process; "" is that of v2."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, names, path = line.split(":", 2)
        found |= dict.fromkeys(names.split(","), path)
    return found


def _unescaped(word: str) -> str:
    return word.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
