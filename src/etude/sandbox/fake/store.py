"""The layers that one fake host holds, and the snapshots made of them: what a fork on another host must ship first."""

from __future__ import annotations

from etude.sandbox.errors import SandboxNotFound
from etude.sandbox.fake.layer import FakeLayer, chain_digest
from etude.sandbox.spec import SnapshotRef

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
