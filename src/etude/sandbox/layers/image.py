"""Images as files: an OCI layout, what `docker save` or `podman save` writes, a root file system in a tar archive, a folder.

Each layer of an image becomes one layer here, so images share what they have in common. Every blob is checked against the digest that
names it, and every layer against the one that the image's own record has for it.
"""

from __future__ import annotations

import functools
import os
import platform
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from etude.core.archives import open_tar
from etude.sandbox.layers.blobs import BROKEN, Blobs, FolderBlobs, TarBlobs, open_decompressed, record, require_digest
from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.errors import BadImage, UnsafeContent
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.tree_import import TreeImporter
from etude.sandbox.layers.unpack import archive_bytes, unpack
from etude.sandbox.layers.view import LayerView

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_MOST_LAYERS = 100  # their names must fit into one page of mount options
BASE = "org.etude.base"  # how many of a snapshot's layers are an image's; without it all are


@dataclass(frozen=True)
class _Plan:
    """An image's layers, lowest first: name of the part, digest of it (if known), digest of the archive in it."""

    layers: tuple[tuple[str, str, str], ...]
    config: dict[str, Any]
    base: int | None = None


def load(store: LayerStore, source: Path, *, name: str = "", bounds: Bounds = Bounds()) -> PinnedSnapshot:
    """Raises BadImage, Hostile, StoreFull, OSError; then nothing of it is kept."""
    if source.is_dir():
        blobs = FolderBlobs(source)
        if blobs.has("index.json"):
            return _layered(store, blobs, _oci(blobs), name, bounds)
        return _folder(store, source, name, bounds)
    with _plain_tar(source, archive_bytes(bounds)) as file:
        try:
            with open_tar(file) as archive:
                first = archive.next()
                kinds = {"index.json", "manifest.json", "oci-layout"}
                looks = first is not None and (
                    first.name in kinds or first.name.split("/")[0] == "blobs" or _has(archive, kinds)
                )
                if looks:
                    blobs = TarBlobs(archive)
                    plan = _oci(blobs) if blobs.has("index.json") else _docker(blobs)
                    return _layered(store, blobs, plan, name, bounds)
        except tarfile.TarError as error:
            raise BadImage(f"{source} is no image that is known here: {error}") from error
        file.seek(0)
        return _stacked(store, [(file, "")], {}, None, name, bounds)


def _has(archive: tarfile.TarFile, names: set[str]) -> bool:
    """Whether one of the first members, as engines write them, is one of these; a root file system may have a million."""
    for _ in range(200):
        member = archive.next()
        if member is None:
            return False
        if member.name in names:
            return True
    return False


def _oci(blobs: Blobs) -> _Plan:
    index = record(blobs, "index.json")
    try:
        while "manifests" in index:
            chosen = _chosen(index["manifests"])
            index = record(blobs, _blob(chosen["digest"]), chosen["digest"])
        config = record(blobs, _blob(index["config"]["digest"]), index["config"]["digest"])
        layers = [(_blob(one["digest"]), str(one["digest"])) for one in index["layers"]]
        base = index.get("annotations", {}).get(BASE)
        if base is not None and not 0 <= int(base) <= len(layers):
            raise BadImage(f"{BASE}={base!r:.40} of {len(layers)} layers")
        return _plan(layers, config, None if base is None else int(base))
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise BadImage(f"its index says nothing that can be followed: {error!r}") from error


def _docker(blobs: Blobs) -> _Plan:
    try:
        (manifest, *_) = record(blobs, "manifest.json")
        config = record(blobs, str(manifest["Config"]))
        return _plan([(str(path), "") for path in manifest["Layers"]], config, None)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise BadImage(f"its manifest.json says nothing that can be followed: {error!r}") from error


def _plan(layers: list[tuple[str, str]], config: Any, base: int | None) -> _Plan:
    inner = config["rootfs"]["diff_ids"]
    if len(layers) > _MOST_LAYERS:
        raise BadImage(f"{len(layers)} layers; {_MOST_LAYERS} at most fit into one mount: squash some of them")
    if len(inner) != len(layers):
        raise BadImage(f"{len(layers)} layers, but {len(inner)} in its record")
    return _Plan(tuple((*layer, str(digest)) for layer, digest in zip(layers, inner, strict=True)), config, base)


def _chosen(manifests: list[Any]) -> Any:
    """The one for this machine, where there is a choice."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    fitting = [one for one in manifests if one.get("platform", {}).get("architecture", architecture) == architecture]
    if not fitting:
        raise BadImage(f"it has no part for {architecture}")
    return fitting[0]


def _blob(digest: str) -> str:
    kind, _, number = digest.partition(":")
    if kind != "sha256" or len(number) != 64 or not number.isalnum():
        raise BadImage(f"{digest[:80]!r} is no sha256 digest")
    return f"blobs/sha256/{number}"


def _layered(store: LayerStore, blobs: Blobs, plan: _Plan, name: str, bounds: Bounds) -> PinnedSnapshot:
    with ExitStack() as stack:
        sources = []
        for part, digest, inner in plan.layers:
            file = stack.enter_context(blobs.open(part))
            if digest:
                require_digest(file, digest)
            sources.append((open_decompressed(file), inner))
        return _stacked(store, sources, plan.config, plan.base, name, bounds)


def _stacked(
    store: LayerStore, sources: list[tuple[IO[bytes], str]], config: Any, base: int | None, name: str, bounds: Bounds
) -> PinnedSnapshot:
    held: PinnedSnapshot | None = None
    try:
        for source, inner in sources:
            below = held.snapshot if held is not None else Snapshot()
            seen = functools.cache(lambda below=below: LayerView.of(store, below).entries)
            with store.drafting() as draft:
                found = unpack(source, draft, bounds, lambda path, seen=seen: path in seen(), proven=bool(inner))
                if inner and found != inner.removeprefix("sha256:"):
                    raise BadImage(f"a layer is not what the image's record says ({inner[:19]})")
                above = store.commit(draft, below, transient=True)
            if held is not None:
                held.release()
            held = above
        layers = held.snapshot.layers if held is not None else ()
        whole = Snapshot(layers, len(layers) if base is None else base, _environment(config), _workdir(config))
        return store.record(whole, name=name)
    finally:
        if held is not None:
            held.release()


def _folder(store: LayerStore, source: Path, name: str, bounds: Bounds) -> PinnedSnapshot:
    fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with store.drafting() as draft:
            TreeImporter(draft, bounds, lambda path: False).take(fd)
            with store.commit(draft, Snapshot(), transient=True) as held:
                return store.record(replace(held.snapshot, base=1), name=name)
    finally:
        os.close(fd)


def _environment(config: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in map(str, _said(config).get("Env") or []):
        name, _, value = line.partition("=")
        if not name or "\0" in line or not _is_text(line):
            raise BadImage(f"its variable {line[:80]!r} can't be one: no name, a zero byte, or half a surrogate pair")
        if "=" in line:
            found[name] = value
    return found


def _workdir(config: Any) -> str:
    return str(_said(config).get("WorkingDir") or "")


def _said(config: Any) -> dict[str, Any]:
    """How to live in it. Raises BadImage."""
    said = config.get("config") or {}
    if not isinstance(said, dict) or not isinstance(said.get("Env") or [], list):
        raise BadImage(f"its config says {said!r:.80}, no variables and no folder")
    return said


def _is_text(line: str) -> bool:
    try:
        os.fsencode(line)
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _plain_tar(source: Path, most_bytes: int) -> Iterator[IO[bytes]]:
    """The archive, unpacked into a temporary file where it was compressed: its parts are looked up in any order."""
    try:
        file = source.open("rb")
    except OSError as error:
        raise BadImage(f"{source}: {error.strerror}") from error
    with file:
        plain = open_decompressed(file)
        if plain is file:
            yield file
            return
        with tempfile.TemporaryFile(dir=source.parent if os.access(source.parent, os.W_OK) else None) as spool:
            _spool(plain, spool, source, most_bytes)
            spool.seek(0)
            yield spool


def _spool(plain: IO[bytes], spool: IO[bytes], source: Path, most_bytes: int) -> None:
    """A small compressed file may hold more than the disk does."""
    left = most_bytes
    try:
        while data := plain.read(1 << 20):
            left -= len(data)
            if left < 0:
                raise UnsafeContent(f"{source}: over {most_bytes} bytes, uncompressed")
            spool.write(data)
    except BROKEN as error:
        raise BadImage(f"{source} can't be decompressed: {error}") from error
