"""JavaScript and TypeScript packages from the registry that npm is configured with.

A package's document lists its versions with the tarball's address, its integrity (sha512; SHA-1 before 2017) and the times of
release. Tarballs often hold built output only; that is the judge's business. No script of a package is run.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

from etude.core.sources.checksum import of_integrity, strongest
from etude.core.sources.project import SourceOffline
from etude.core.sources.registry import RegistryRelease, RegistrySource, run_package_manager
from etude.core.sources.release import is_before, semver_release


class NpmSource(RegistrySource):
    """Early and deprecated versions are left out."""

    kind = "npm"

    def configured_index(self) -> str:
        """Without npm: what its environment variable or ~/.npmrc says."""
        if npm := shutil.which("npm"):
            # In the root folder, so that no project's .npmrc is obeyed: a recipe means the same wherever it is started.
            address = run_package_manager([npm, "config", "get", "registry"], "/").stdout.strip()
        else:
            variables = (os.environ.get(name) for name in ("NPM_CONFIG_REGISTRY", "npm_config_registry"))
            address = next(filter(None, variables), None) or _of_npmrc(Path.home() / ".npmrc")
        if not address.startswith(("http://", "https://")):
            raise SourceOffline("no npm registry is configured; install npm, or set NPM_CONFIG_REGISTRY to its address")
        return address.rstrip("/") + "/"

    def page_name(self, package: str) -> str:
        return quote(package, safe="@")  # the slash after a scope is part of the name

    def newest(self, package: str, page: str) -> list[RegistryRelease]:
        found = [
            (numbers, release)
            for release in self.fetcher.page(page, "application/json", _versions)
            if (numbers := semver_release(release.version)) and is_before(release.released, self.before)
        ]
        return [release for _, release in sorted(found, key=lambda item: item[0], reverse=True)]


def _of_npmrc(file: Path) -> str:
    """The last `registry = …` of an ini file; "" without one."""
    if not file.is_file():
        return ""
    pairs = (line.partition("=") for line in file.read_text(errors="replace").splitlines())
    found = [value.strip().strip("\"'") for key, _, value in pairs if key.strip() == "registry"]
    return found[-1] if found else ""


def _versions(page: bytes) -> list[RegistryRelease]:
    """All versions of a package's document that are not deprecated. Raises ValueError."""
    try:
        document = json.loads(page)
        times = document.get("time") or {}
        return [
            RegistryRelease(
                version,
                str(times.get(version) or ""),
                str(about["dist"]["tarball"]),
                of_integrity(about["dist"].get("integrity") or "")
                or strongest({"sha1": about["dist"].get("shasum") or ""}),
            )
            for version, about in document["versions"].items()
            if not about.get("deprecated")
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError("it is no document of an npm registry; correct npm's registry setting") from None
