"""Images by name in a store: added from files, or built from a Dockerfile or a devcontainer.json by an engine that is found by trying.

The engine only builds: what it made is saved as an archive, unpacked into the store, and removed from the engine again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from etude.sandbox.errors import InfraError, Unsupported, UserError
from etude.sandbox.layers.image import load
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.snapshots.errors import translate_layer_errors

_BUILD_PATIENCE_S = 3600.0
_TRY_PATIENCE_S = 60.0
_LINES = 15  # of what an engine said, in an error
_COMMENT = re.compile(r"^[^\S\n]*+//.*$", re.MULTILINE)  # devcontainer.json is JSON with comments
# Without an engine's default limits, which a machine without the right to raise them refuses; chroot needs no network of its own.
_ISOLATION = ("--isolation", "chroot")


def add(store: LayerStore, source: Path, name: str) -> PinnedSnapshot:
    """An OCI layout, a `docker save` archive, a root file system as tar or folder. Raises UserError, CapacityExhausted."""
    if not source.exists():
        raise UserError(f"{source}: there is no such file or folder")
    with translate_layer_errors():
        return load(store, source, name=name)


@dataclass(frozen=True)
class ImageBuild:
    """What to build: a Dockerfile (or Containerfile) and the folder that it sees."""

    dockerfile: Path
    context: Path


def build(store: LayerStore, source: Path, name: str) -> PinnedSnapshot:
    """`source`: a folder with a Dockerfile or a devcontainer.json, or one of these files. Raises UserError where the build fails,
    Unsupported where no engine works here, with what each one said."""
    recipe = find_build(source)
    engine = _engine()
    tag = f"localhost/etude-build-{os.getpid()}-{os.urandom(4).hex()}"
    with tempfile.TemporaryDirectory(prefix="etude-image-", dir=store.root) as folder:
        archive = Path(folder, "image.tar")
        try:
            words = [*_ISOLATION, "-f", str(recipe.dockerfile), "-t", tag, str(recipe.context)]
            _run([engine, "build", *words], UserError, f"building {recipe.dockerfile} failed")
            if engine == "buildah":
                _run([engine, "push", "-q", tag, f"docker-archive:{archive}"], InfraError, "saving the image failed")
            else:
                _run([engine, "save", "-q", "-o", str(archive), tag], InfraError, "saving the image failed")
        finally:
            subprocess.run([engine, "rmi", "-f", tag], capture_output=True, timeout=_TRY_PATIENCE_S)
        return add(store, archive, name)


def find_build(source: Path) -> ImageBuild:
    """Raises UserError where there is nothing to build."""
    if source.is_file():
        return _devcontainer(source) if source.suffix == ".json" else ImageBuild(source, source.parent)
    for name in ("Dockerfile", "Containerfile"):
        if (source / name).is_file():
            return ImageBuild(source / name, source)
    for name in (".devcontainer/devcontainer.json", ".devcontainer.json", "devcontainer.json"):
        if (source / name).is_file():
            return _devcontainer(source / name)
    raise UserError(f"{source}: neither a Dockerfile nor a devcontainer.json is there")


def _devcontainer(file: Path) -> ImageBuild:
    try:
        said = json.loads(_COMMENT.sub("", file.read_text()))
        build = said.get("build", {})
        dockerfile = build.get("dockerfile") or said.get("dockerFile")
        context = build.get("context") or said.get("context") or "."
    except (ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} can't be read: {error}") from error
    if not isinstance(dockerfile, str) or not isinstance(context, str):
        raise UserError(
            f"{file} builds nothing (no build.dockerfile); for its `image`, save that one and add the archive"
        )
    return ImageBuild(file.parent / dockerfile, file.parent / context)


def _engine() -> str:
    """The first that answers. Raises Unsupported."""
    said: list[str] = []
    for name in ("podman", "buildah"):
        if shutil.which(name) is None:
            said.append(f"{name} is not installed")
            continue
        done = subprocess.run([name, "info"], capture_output=True, text=True, timeout=_TRY_PATIENCE_S)
        if done.returncode == 0:
            return name
        said.append(f"{name}: {_end(done.stderr)}")
    raise Unsupported(
        f"no engine builds images here ({'; '.join(said)}); install podman, or add an image that was saved elsewhere"
    )


def _run(words: list[str], fault: type[UserError] | type[InfraError], what: str) -> None:
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_BUILD_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        raise fault(f"{what}: it took more than {_BUILD_PATIENCE_S:.0f} s") from None
    if done.returncode:
        raise fault(f"{what} ({words[0]} {done.returncode}):\n{_end(done.stderr or done.stdout)}")


def _end(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LINES:])
