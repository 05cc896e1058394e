"""A snapshot or image as a tar archive in the form of an OCI layout, so that any engine can load it, and so can another store."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

from etude.sandbox.layers.image import ARCHITECTURES, BASE
from etude.sandbox.layers.manifest import LayerEntry
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.tree import LayerTree
from etude.sandbox.layers.unpack import GONE, OPAQUE

# One layer as a tar archive, as container images have them: whiteouts by name, in the order of the manifest, the same
# bytes each time.


def pack(store: LayerStore, digest: str, target: IO[bytes]) -> None:
    """The layer must be held."""
    manifest = store.manifest(digest)
    with (
        tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive,
        LayerTree(store.layer(digest) / "tree") as tree,
    ):
        for entry in manifest.entries:
            _add(archive, tree, entry)


def _add(archive: tarfile.TarFile, tree: LayerTree, entry: LayerEntry) -> None:
    folder, _, name = entry.path.rpartition("/")
    member = tarfile.TarInfo(entry.path)
    member.mode = entry.mode
    member.pax_headers = {f"SCHILY.xattr.{key}": _text(value) for key, value in entry.attributes}
    if entry.kind == "gone":
        member.name = f"{folder}/{GONE}{name}".lstrip("/")
        archive.addfile(member)
    elif entry.kind == "link":
        member.type, member.linkname = tarfile.SYMTYPE, entry.content
        archive.addfile(member)
    elif entry.kind == "dir":
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
        if entry.opaque:
            archive.addfile(tarfile.TarInfo(f"{entry.path}/{OPAQUE}"))
    else:
        with open(tree.open(entry.path), "rb") as file:
            status = os.fstat(file.fileno())
            member.size = entry.size
            member.mtime = status.st_mtime_ns / 1e9
            archive.addfile(member, file)


def _text(value: str) -> str:
    return bytes.fromhex(value).decode(errors="surrogateescape")


_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG, _MANIFEST = (f"application/vnd.oci.image.{kind}.v1+json" for kind in ("config", "manifest"))


def export(store: LayerStore, held: PinnedSnapshot, target: IO[bytes], spool: Path | None = None) -> None:
    """The same snapshot gives the same bytes. `spool`: where a layer lies on its way; default: the store's disk."""
    snapshot = held.snapshot
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as archive:
        _put(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        layers: list[dict[str, Any]] = []
        for digest in reversed(snapshot.layers):
            with tempfile.TemporaryFile(dir=spool or store.root) as file:
                pack(store, digest, file)
                size = file.tell()
                file.seek(0)
                found = hashlib.file_digest(file, "sha256").hexdigest()
                file.seek(0)
                if all(one["digest"] != f"sha256:{found}" for one in layers):
                    _put(archive, f"blobs/sha256/{found}", file, size)
            layers.append({"mediaType": _LAYER, "digest": f"sha256:{found}", "size": size})
        config = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Env": [f"{key}={value}" for key, value in snapshot.env.items()],
                "WorkingDir": snapshot.workdir,
            },
            "rootfs": {"type": "layers", "diff_ids": [one["digest"] for one in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _blob(archive, _CONFIG, config),
            "layers": layers,
            "annotations": {BASE: str(snapshot.base)},
        }
        index = {"schemaVersion": 2, "manifests": [_blob(archive, _MANIFEST, manifest)]}
        _put(archive, "index.json", json.dumps(index).encode())


def _blob(archive: tarfile.TarFile, kind: str, what: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(what).encode()
    digest = hashlib.sha256(data).hexdigest()
    _put(archive, f"blobs/sha256/{digest}", data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


def _put(archive: tarfile.TarFile, name: str, data: bytes | IO[bytes], size: int = 0) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data) if isinstance(data, bytes) else size
    archive.addfile(member, io.BytesIO(data) if isinstance(data, bytes) else data)
