"""A project out of one archive of a registry, and refs of what a registry doesn't have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from etude.core.sources.checksum import of_address
from etude.core.sources.fetch import Fetcher
from etude.core.sources.project import ProjectRefused, Ref, SourceProject
from etude.core.sources.unpack import UnpackLimits, top, unpack, work_folder

REFUSED = "refused:"


def refused_ref(source: str, kind: str, name: str, reason: str) -> Ref:
    """What a recipe names and the registry can't give: `open` refuses it with the reason, so that it is counted like any other."""
    return Ref(source, kind, name, "", "", REFUSED + reason)


def check(ref: Ref) -> None:
    """Raises ProjectRefused for a ref of `refused`."""
    if ref.location.startswith(REFUSED):
        raise ProjectRefused(ref.location.removeprefix(REFUSED))


@contextmanager
def open_archive(ref: Ref, fetcher: Fetcher, limits: UnpackLimits) -> Iterator[SourceProject]:
    """The archive at `ref.location`, fetched and unpacked. Raises SourceOffline or ProjectRefused."""
    check(ref)
    archive = fetcher.artefact(ref.location)
    with work_folder(fetcher.scratch) as folder:
        unpacked = unpack(archive, folder, limits)
        yield SourceProject(ref, top(folder), str(of_address(ref.location)[1]), dict(unpacked.skipped))
