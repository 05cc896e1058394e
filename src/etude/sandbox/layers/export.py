"""A snapshot or image as a tar archive in the form of an OCI layout, so that any engine can load it, and so can another store."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
import tempfile
from pathlib import Path
from typing import IO, Any

from etude.sandbox.layers.image import ARCHITECTURES, BASE
from etude.sandbox.layers.pack import pack
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot

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
