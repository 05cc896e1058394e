"""Names of checkpoints on a model hub: `owner/name`, `owner/name@revision`, each with or without the prefix `hub:`.

A folder of this machine wins over a hub name. A name without the prefix is a path if the path exists, if its first part is a folder here, or if its
first part is one of `FOLDERS`. With the prefix it is always a hub name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PREFIX = "hub:"
MAIN = "main"
FOLDERS = ("checkpoints", "runs")  # where checkpoints of this project lie: a missing one is a wrong path
MOST_CHARS = 96  # of the owner and of the name, as the hub limits them
_PART = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,198}[A-Za-z0-9_])?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubError(Exception):
    """A checkpoint can't be had from the hub or its cache. One line: what is wrong, and what to do."""


class BadHubName(HubError):
    """A text that has the form of a hub name and is none."""


@dataclass(frozen=True)
class HubName:
    """A repository and the branch, tag or commit that is asked for."""

    repository: str
    revision: str = MAIN

    def __str__(self) -> str:
        return self.repository if self.revision == MAIN else f"{self.repository}@{self.revision}"

    @property
    def commit(self) -> str:
        """The commit if the revision is one, else empty."""
        return self.revision if _COMMIT.fullmatch(self.revision) else ""


def hub_name(text: str, roots: Sequence[Path] = (Path("."),)) -> HubName | None:
    """The hub name that a text is, None for a path. `roots` are the folders in which paths are looked up. Raises BadHubName."""
    if not text.startswith(PREFIX):
        repository = text.partition("@")[0]
        owner, slash, name = repository.partition("/")
        if not slash or not owner or not name or "/" in name or owner in FOLDERS or owner.startswith((".", "~")):
            return None
        if any(_is_there(root / place) for root in roots for place in (text, owner)):
            return None
    return parse_hub_name(text)


def parse_hub_name(text: str, revision: str | None = None) -> HubName:
    """The hub name that a text says, `revision` if the text has none. Raises BadHubName."""
    repository, at, own = text.removeprefix(PREFIX).partition("@")
    parts = repository.split("/")
    if len(parts) != 2 or not all(_PART.fullmatch(part) and len(part) <= MOST_CHARS for part in parts):
        raise BadHubName(_bad(text, "owner and name have letters, digits, '-', '_' and '.', at most 96 each"))
    if "--" in repository or ".." in repository or repository.endswith(".git"):
        raise BadHubName(_bad(text, "it has no '--' and no '..', and does not end with '.git'"))
    if at and revision is not None and own != revision:
        raise BadHubName(
            f"{text!r:.200} names the revision {own!r:.100}, and --revision is {revision!r:.100}: give one"
        )
    wanted = own if at else revision if revision is not None else MAIN
    if not _REVISION.fullmatch(wanted) or ".." in wanted or "//" in wanted:
        raise BadHubName(
            f"{text!r:.200}: {wanted!r:.200} is no revision; give a branch, a tag or a commit of letters, digits, '-', '_', '.' and '/'"
        )
    return HubName(repository, wanted)


def _bad(text: str, rule: str) -> str:
    return f"{text!r:.200} is no folder here and no hub name: write a path, or owner/name[@revision], where {rule}"


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False
