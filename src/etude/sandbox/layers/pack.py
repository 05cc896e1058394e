"""One layer as a tar archive, as container images have them: whiteouts by name, in the order of the manifest, the same bytes each time."""

from __future__ import annotations

import os
import tarfile
from typing import IO

from etude.sandbox.layers.manifest import LayerEntry
from etude.sandbox.layers.store import LayerStore
from etude.sandbox.layers.tree import LayerTree
from etude.sandbox.layers.unpack import GONE, OPAQUE


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
