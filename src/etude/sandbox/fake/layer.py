"""A frozen layer of a fake sandbox' files, known by a digest of its contents; travels as a tar with `.wh.` names for what it removes."""

from __future__ import annotations

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from etude.core.archives import ArchiveError, ArchiveLimits, EntryCounter, open_tar, tar_content, tar_entries
from etude.sandbox.errors import LayerCorrupt, SandboxNotFound
from etude.sandbox.spec import SnapshotRef

_WHITEOUT = ".wh."  # as OCI images write it


class FakeFile(NamedTuple):
    data: bytes
    mode: int = 0o644


_LIMITS = ArchiveLimits(entries=100_000, total_bytes=1 << 30)


class FakeLayer(dict[str, FakeFile | None]):
    """Path relative to / → file, or None where the layer removes one from those below. Never written after it was made."""

    def __init__(self, files: Mapping[str, FakeFile | None]) -> None:
        super().__init__(files)

    @cached_property
    def digest(self) -> str:
        total = hashlib.sha256()
        for name in sorted(self):
            file = self[name]
            content = "-" if file is None else f"{file.mode:o} {hashlib.sha256(file.data).hexdigest()}"
            total.update(f"{name}\0{content}\n".encode("utf-8", "surrogateescape"))
        return total.hexdigest()

    def export(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name in sorted(self):
                file = self[name]
                folder, leaf = posixpath.split(name)
                info = tarfile.TarInfo(name if file else posixpath.join(folder, _WHITEOUT + leaf))
                info.size, info.mode = (len(file.data), file.mode) if file else (0, 0)
                archive.addfile(info, io.BytesIO(file.data if file else b""))
        return out.getvalue()

    @staticmethod
    def load(digest: str, archive: bytes) -> FakeLayer:
        """Raises LayerCorrupt for anything that is not the layer of that digest."""
        files: dict[str, FakeFile | None] = {}
        try:
            with open_tar(io.BytesIO(archive)) as opened:
                for name, kind, info in tar_entries(opened, EntryCounter(_LIMITS), ("file", "folder")):
                    folder, leaf = posixpath.split(name)
                    if leaf.startswith(_WHITEOUT):
                        files[posixpath.join(folder, leaf.removeprefix(_WHITEOUT))] = None
                    elif kind == "file":
                        files[name] = FakeFile(tar_content(opened, info), info.mode)
        except (ArchiveError, tarfile.TarError, ValueError, OverflowError, EOFError) as error:
            raise LayerCorrupt(f"layer {digest[:12]}: not an archive: {error}") from None
        layer = FakeLayer(files)
        if layer.digest != digest:
            raise LayerCorrupt(f"layer {digest[:12]}: the contents have the digest {layer.digest[:12]}")
        return layer


def chain_digest(digests: tuple[str, ...]) -> str:
    """What a snapshot of these layers, topmost first, is called."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


# The layers that one fake host holds, and the snapshots made of them: what a fork on another host must ship first.


_PIECE_BYTES = 4 << 20  # of an archive at once


class FakeLayerStore:
    """Layers by digest; chains, topmost first, by the digest of a snapshot or the name of an image."""

    def __init__(self) -> None:
        self._layers: dict[str, FakeLayer] = {}
        self._arriving: dict[str, bytes] = {}
        self._chains: dict[str, tuple[str, ...]] = {}

    def keep(self, layers: tuple[FakeLayer, ...], name: str = "") -> SnapshotRef:
        self._layers |= {layer.digest: layer for layer in layers}
        return self._enter(tuple(layer.digest for layer in layers), name)

    def find(self, called: str) -> tuple[FakeLayer, ...]:
        """The layers of a snapshot or image. Raises SandboxNotFound."""
        return tuple(self._layers[digest] for digest in self._chain(called))

    def _chain(self, called: str) -> tuple[str, ...]:
        if called not in self._chains:
            raise SandboxNotFound(f"{called[:20]!r}: no such snapshot or image on this host")
        return self._chains[called]

    async def chain(self, called: str) -> tuple[tuple[str, ...], bytes]:
        """Its layers, and the record from which another shelf can `enter` it."""
        digests = self._chain(called)
        return digests, "\n".join(digests).encode()

    async def missing(self, digests: tuple[str, ...]) -> list[str]:
        return [digest for digest in digests if digest not in self._layers]

    async def export_layer(self, digest: str, start: int) -> tuple[bytes, bool]:
        if digest not in self._layers:
            raise SandboxNotFound(f"layer {digest[:12]}: not on this host")
        archive, end = self._layers[digest].export(), start + _PIECE_BYTES
        return archive[start:end], end < len(archive)

    async def import_layer(self, digest: str, parcel: str, start: int, piece: bytes, more: bool) -> None:
        arrived = self._arriving.pop(parcel, b"")[:start] + piece
        if more:
            self._arriving[parcel] = arrived
        else:
            self._layers[digest] = FakeLayer.load(digest, arrived)

    async def enter(self, record: bytes, name: str) -> SnapshotRef:
        """A snapshot of layers that are here by now."""
        digests = tuple(record.decode().split())  # none at all for a sandbox in which nothing was written
        if absent := await self.missing(digests):
            raise SandboxNotFound(f"layer {absent[0][:12]}: not on this host")
        return self._enter(digests, name)

    async def held(self) -> frozenset[str]:
        return frozenset(self._layers)

    def _enter(self, digests: tuple[str, ...], name: str) -> SnapshotRef:
        digest = chain_digest(digests)
        self._chains[digest] = digests
        if name:
            self._chains[name] = digests
        return SnapshotRef(digest, name)
