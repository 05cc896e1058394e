"""Pinned releases from the package index, kept in a cache and unpacked once.

pip finds them, so a mirror or a proxy that is set up for pip holds here too. It checks the digest before anything is unpacked or
run; a source release then has its metadata read by the package's own build back end, as for any `pip install`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etude.core.sources.project import ProjectRefused
from etude.core.sources.unpack import top, unpack

DOWNLOAD_TIMEOUT_S = 240.0  # all of them are under 2 MB, but a source release first fetches its build back end


@dataclass(frozen=True)
class Pin:
    """A release at one version: a wheel, or the source release (`sdist`) where only that carries the tests."""

    name: str
    version: str
    sha256: str
    kind: Literal["wheel", "sdist"] = "wheel"


class PackagesUnavailable(Exception):
    """The package index can't be reached and the cache lacks the release: the suite can't be asked, with this reason."""


def default_cache() -> Path:
    """`ETUDE_CACHE`, else the user's cache folder."""
    if folder := os.environ.get("ETUDE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "etude"


def unpack_release(pin: Pin, cache: Path) -> Path:
    """The folder of the unpacked release, downloaded and checked if need be. Raises PackagesUnavailable."""
    folder = cache / "packages" / f"{pin.name}-{pin.version}-{pin.sha256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        root = _unpack(_download(pin, Path(scratch)), Path(scratch) / "unpacked")
        try:
            root.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first: the same bytes
                raise
    return folder


def _unpack(archive: Path, into: Path) -> Path:
    """The folder with the package: a source release has one folder around everything. Files are readable for the users of sandboxes."""
    into.mkdir()
    try:
        found = unpack(archive, into)
    except ProjectRefused as error:
        raise PackagesUnavailable(f"{archive.name} can't be unpacked: {error}") from None
    if found.skipped:
        raise PackagesUnavailable(f"{archive.name} holds entries that are not unpacked: {dict(found.skipped)}")
    for folder, _, names in os.walk(into):
        os.chmod(folder, 0o755)
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)
    return into if archive.suffix == ".whl" else top(into)


def _download(pin: Pin, folder: Path) -> Path:
    wanted = f"{pin.name}=={pin.version}"
    requirements = folder / "asked.txt"
    requirements.write_text(f"{wanted} --hash=sha256:{pin.sha256}\n")
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--disable-pip-version-check",
        "--retries",
        "1",
    ]
    command += ["--no-binary" if pin.kind == "sdist" else "--only-binary", ":all:"]
    command += ["--require-hashes", "--requirement", str(requirements), "--dest", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(f"{wanted}: no answer from the package index in {DOWNLOAD_TIMEOUT_S:.0f} s") from None
    archives = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if done.returncode != 0 or len(archives) != 1:
        raise PackagesUnavailable(f"{wanted} could not be downloaded: {_reason(done.stderr)}")
    return archives[0]


def _reason(output: str) -> str:
    """What pip says it failed on, in one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    if any("DO NOT MATCH THE HASHES" in line for line in errors):
        return "the index gave a file with another SHA-256 than the pinned one"
    return errors[-1] if errors else lines[-1] if lines else "pip gave no reason"
