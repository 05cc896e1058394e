"""A project as a source hands it over: a named version of somebody's code, unpacked into a folder for as long as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from etude.core.fingerprint.project import project_name


class SourceOffline(Exception):
    """The source can't be reached: it is skipped with a notice, and what else there is goes on. The message says what was tried."""


class ProjectRefused(Exception):
    """This one project can't be taken (archive damaged, too large, climbs out of its folder …); the message is the reason."""


@dataclass(frozen=True)
class Ref:
    """A project that can be opened; listing it fetches an index at most, no archive."""

    source: str  # the source's name in the recipe
    kind: str  # "folder", "git", "stdlib", "installed", "sdist", "npm" or "debian"
    name: str  # as the source spells it
    version: str  # release, commit or "" for a live folder
    released: str = ""  # ISO date of the release, "" where it is unknown
    location: str = ""  # what `open` needs: a path or an address

    @property
    def id(self) -> str:
        """Unique in a recipe; the name of the project in the ledger and the manifest."""
        return f"{self.source}/{self.name}@{self.version}" if self.version else f"{self.source}/{self.name}"

    @property
    def project(self) -> str:
        """One name for the same project in every source, for the hold-out."""
        return project_name(self.name)


@dataclass(frozen=True)
class SourceProject:
    """`root` holds the files, to be read only, and is gone after the context; `origin` names the artefact by content:
    "sha256:<hex>" of the archive, "git:<commit>", or "" for a live folder; `skipped` counts what was left out of it while it was
    unpacked, by reason (links, devices, files above the limit)."""

    ref: Ref
    root: Path
    origin: str
    skipped: Mapping[str, int] = field(default_factory=dict)


class ProjectSource(Protocol):
    """Somewhere that projects come from."""

    name: str

    def refs(self) -> Iterator[Ref]:
        """All projects in a fixed order. Raises SourceOffline."""
        ...

    def open(self, ref: Ref) -> AbstractContextManager[SourceProject]:
        """The unpacked project. Raises SourceOffline or ProjectRefused."""
        ...
