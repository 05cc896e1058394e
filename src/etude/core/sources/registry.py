"""What the sources of package registries have in common: a list of packages, a page about each in an index, releases to take from it."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import urljoin

from etude.core.sources.archive import open_archive, refused_ref
from etude.core.sources.checksum import Checksum
from etude.core.sources.download import Missing, address_without_login
from etude.core.sources.fetch import Fetcher
from etude.core.sources.project import ProjectRefused, Ref, SourceOffline, SourceProject
from etude.core.sources.release import checked_day
from etude.core.sources.unpack import UnpackLimits


@dataclass(frozen=True)
class RegistryRelease:
    """One version as an index lists it; `address` may be relative to the page. Without a checksum `open` refuses it."""

    version: str
    released: str
    address: str
    checksum: Checksum | None


ASK_S = 300  # half a second; a minute was not enough where thirty processes wanted each core


def run_package_manager(command: Sequence[str], folder: str | None = None) -> subprocess.CompletedProcess[str]:
    """What a package manager says of its own settings. Raises SourceOffline where it gives no answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=ASK_S, cwd=folder)
    except subprocess.TimeoutExpired:
        raise SourceOffline(
            f"{command[0]} has not returned its index within {ASK_S} s; try again when the machine is less busy"
        ) from None


class RegistrySource(ABC):
    """The `releases` newest releases of each package from before the day `before`, newest first."""

    kind: ClassVar[str]

    def __init__(
        self,
        name: str,
        packages: Sequence[str],
        fetcher: Fetcher,
        *,
        releases: int = 1,
        before: str = "",
        limits: UnpackLimits = UnpackLimits(),
        index: str = "",
    ) -> None:
        """`index` is the address of an index that the package manager isn't configured with."""
        self.name, self.packages, self.fetcher, self.limits = name, packages, fetcher, limits
        self.releases, self.before, self._index = releases, checked_day(before), index

    def refs(self) -> Iterator[Ref]:
        """Raises SourceOffline. A package that the index doesn't have is a ref that `open` refuses."""
        if not self._index:
            self._index = self.configured_index()
        for package in self.packages:
            try:
                page = urljoin(self._index, self.page_name(package))
                releases = self.newest(package, page)[: self.releases]
            except (Missing, ProjectRefused) as error:
                yield refused_ref(self.name, self.kind, package, str(error))
                continue
            for release in releases:
                location = address_without_login(urljoin(page, release.address))
                if release.checksum:
                    location = release.checksum.on(location)
                yield Ref(self.name, self.kind, package, release.version, release.released, location)
            if not releases:
                until = f" before {self.before}" if self.before else ""
                yield refused_ref(self.name, self.kind, package, f"no release of {package}{until} that can be taken")

    def open(self, ref: Ref) -> AbstractContextManager[SourceProject]:
        """Raises SourceOffline or ProjectRefused."""
        return open_archive(ref, self.fetcher, self.limits)

    @abstractmethod
    def configured_index(self) -> str:
        """The address that the package manager uses, ending in "/". Raises SourceOffline."""

    @abstractmethod
    def page_name(self, package: str) -> str:
        """The package's page, relative to the index."""

    @abstractmethod
    def newest(self, package: str, page: str) -> list[RegistryRelease]:
        """All releases that fit, newest first. Raises SourceOffline, Missing or ProjectRefused."""
