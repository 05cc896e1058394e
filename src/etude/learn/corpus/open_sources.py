"""From the recipe's `[corpus.sources.<name>]` to sources that can be read."""

from __future__ import annotations

from collections.abc import Mapping

from etude.core.sources.debian import DebianSource
from etude.core.sources.fetch import Fetcher
from etude.core.sources.folder import FolderSource
from etude.core.sources.git import GitSource
from etude.core.sources.installed import InstalledSource
from etude.core.sources.npm import NpmSource
from etude.core.sources.project import ProjectSource
from etude.core.sources.sdist import SdistSource
from etude.core.sources.stdlib import StdlibSource
from etude.learn.corpus.settings import SourceSettings


def open_sources(settings: Mapping[str, SourceSettings], fetcher: Fetcher) -> dict[str, ProjectSource]:
    """One for each table, by name; downloads and unpacked archives lie with `fetcher`."""
    return {name: _open(name, table, fetcher) for name, table in settings.items()}


def _open(name: str, table: SourceSettings, fetcher: Fetcher) -> ProjectSource:
    match table.kind:
        case "folder":
            return FolderSource(name, table.place)
        case "git":
            return GitSource(name, table.place, fetcher.scratch, before=table.before, releases=table.releases)
        case "stdlib":
            return StdlibSource(name, table.packages, fetcher.scratch)
        case "installed":
            return InstalledSource(name, table.packages, fetcher.scratch)
        case "sdist":
            return SdistSource(name, table.packages, fetcher, releases=table.releases, before=table.before)
        case "npm":
            return NpmSource(name, table.packages, fetcher, releases=table.releases, before=table.before)
        case "debian":
            return DebianSource(name, table.packages, fetcher)
