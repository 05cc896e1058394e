"""Python projects as they were released: source distributions from the index that pip is configured with.

The index is read in its JSON form (simple repository API, PEP 691; upload times from PEP 700). Nothing of an archive is run: no
setup.py, no build. A release without a source distribution is taken from a wheel, which seldom has tests or documents, but the code.
"""

from __future__ import annotations

import json
import sys

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from etude.core.sources.checksum import strongest
from etude.core.sources.project import SourceOffline
from etude.core.sources.registry import RegistryRelease, RegistrySource, run_package_manager
from etude.core.sources.release import is_before

JSON_FORM = "application/vnd.pypi.simple.v1+json"
# pip itself puts its environment, its configuration files and its own default together.
ASK_PIP = "from pip._internal.commands import create_command as c; print(c('download').parse_args([])[0].index_url)"


class SdistSource(RegistrySource):
    """Early versions and yanked files are left out."""

    kind = "sdist"

    def configured_index(self) -> str:
        """May hold a login."""
        done = run_package_manager([sys.executable, "-P", "-c", ASK_PIP])
        address = done.stdout.strip()
        if done.returncode or not address:
            problem = (done.stderr.strip().splitlines() or ["no address"])[-1]
            raise SourceOffline(f"pip can't be asked for its index ({problem}); install pip for {sys.executable}")
        return address.rstrip("/") + "/"

    def page_name(self, package: str) -> str:
        return f"{canonicalize_name(package)}/"

    def newest(self, package: str, page: str) -> list[RegistryRelease]:
        name = canonicalize_name(package)
        best: dict[Version, tuple[tuple[int, str], RegistryRelease]] = {}
        for filename, release in self.fetcher.page(page, JSON_FORM, _files):
            found = _version_and_rank(filename, name)
            if found is None or not is_before(release.released, self.before):
                continue
            version, rank = found
            if not version.is_prerelease and (version not in best or rank < best[version][0]):
                best[version] = (rank, release)
        return [
            RegistryRelease(str(version), release.released, release.address, release.checksum)
            for version, (_, release) in sorted(best.items(), key=lambda item: item[0], reverse=True)
        ]


def _files(page: bytes) -> list[tuple[str, RegistryRelease]]:
    """(filename, file as a release whose version isn't read yet), without the yanked ones. Raises ValueError."""
    try:
        return [
            (
                str(file["filename"]),
                RegistryRelease(
                    "", str(file.get("upload-time") or ""), str(file["url"]), strongest(file.get("hashes") or {})
                ),
            )
            for file in json.loads(page)["files"]
            if not file.get("yanked")
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is no index page in JSON (PEP 691); set PIP_INDEX_URL to an index that has them") from None


def _version_and_rank(filename: str, package: str) -> tuple[Version, tuple[int, str]] | None:
    """Of the files of one version the one with the lowest rank is taken: .tar.gz, .zip, a wheel for every platform, another wheel.
    None for anything else (eggs, installers)."""
    try:
        if filename.endswith(".whl"):
            name, version, _, tags = parse_wheel_filename(filename)
            rank = 2 if any(tag.platform == "any" for tag in tags) else 3
        else:
            name, version = parse_sdist_filename(filename)
            rank = 0 if filename.endswith(".tar.gz") else 1
    except (InvalidSdistFilename, InvalidWheelFilename):
        return None
    return (version, (rank, filename)) if name == package else None
