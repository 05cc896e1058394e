"""Files from registries, kept in a cache folder: what is there is used without the network.

    <cache>/artefacts/<first two>/<algorithm>-<hex>   archives by checksum, checked whenever they are used
    <cache>/index/<sha256 of address and form>        index pages as they were first seen
    <cache>/unpacked/                                 projects while they are open

The index stays as it was first seen, so that a corpus built twice is the same corpus; to look for new releases, remove `index`.
What is not what its checksum says is refused and never kept.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from etude.core.sources.checksum import Checksum, of_address
from etude.core.sources.download import Downloader, Missing, address_without_login
from etude.core.sources.project import ProjectRefused, SourceOffline

T = TypeVar("T")

ARTEFACT_BYTES = 512 * 1024**2  # more than the source of any but a few browsers and compilers; above it is mostly data
INDEX_BYTES = 64 * 1024**2  # a page is parsed in memory, where it takes ten times its size


class Fetcher:
    """One for all sources of a process. Several processes may share the cache: they wait for each other's downloads."""

    def __init__(self, cache: Path, downloader: Downloader | None = None, *, max_bytes: int = ARTEFACT_BYTES) -> None:
        self.cache, self.max_bytes = cache, max_bytes
        self.scratch = cache / "unpacked"
        self._downloader = downloader or Downloader()

    def close(self) -> None:
        self._downloader.close()

    def page(self, address: str, accept: str, parse: Callable[[bytes], T]) -> T:
        """An index page in the form `accept` as `parse` reads it, from the cache if it was ever seen. A page that `parse` finds wrong (it
        raises ValueError) is a portal or a proxy and isn't kept. Raises SourceOffline, ProjectRefused or Missing."""
        key = hashlib.sha256(f"{address_without_login(address)} {accept}".encode()).hexdigest()
        file = self.cache / "index" / key
        with self._locked(file) as part:
            if not file.is_file():
                self._downloader.download(address, part, max_bytes=INDEX_BYTES, accept=accept)
                part.replace(file)
            try:
                return parse(file.read_bytes())
            except ValueError as error:
                file.unlink()
                raise SourceOffline(f"{address_without_login(address)} does not answer as expected: {error}") from None

    def artefact(self, address: str) -> Path:
        """The file at an address that carries its checksum (see `checksum.py`). Raises SourceOffline or ProjectRefused."""
        url, checksum = of_address(address)
        if checksum is None:
            raise ProjectRefused(f"the index gives no usable checksum for {address_without_login(url)}")
        file = self.cache / "artefacts" / checksum.hex[:2] / f"{checksum.algorithm}-{checksum.hex}"
        with self._locked(file) as part:
            if not file.is_file() or not checksum.matches(file):
                self._download(url, part, checksum)
                part.replace(file)
        return file

    def _download(self, url: str, part: Path, checksum: Checksum) -> None:
        resumed = part.exists()
        try:
            self._downloader.download(url, part, max_bytes=self.max_bytes)
            if resumed and not checksum.matches(part):
                # The bytes of an earlier attempt may be to blame: once more, from zero.
                part.unlink()
                self._downloader.download(url, part, max_bytes=self.max_bytes)
        except Missing as missing:
            raise ProjectRefused(str(missing)) from None
        if not checksum.matches(part):
            part.unlink()
            raise ProjectRefused(
                f"{address_without_login(url)} is not what the index says: its checksum is not {checksum}"
            )

    @contextmanager
    def _locked(self, file: Path) -> Iterator[Path]:
        """Where to write until `file` is whole, held against other processes."""
        file.parent.mkdir(parents=True, exist_ok=True)
        locks = self.cache / "locks"
        locks.mkdir(exist_ok=True)
        # One of 256 locks: few files, and two downloads that share one only wait for each other.
        with (locks / hashlib.sha256(file.name.encode()).hexdigest()[:2]).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield file.with_name(file.name + ".part")
