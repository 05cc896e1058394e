"""How much a store holds, and for whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from etude.sandbox.layers.lease import leases
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore


@dataclass(frozen=True)
class SnapshotUsage:
    """One snapshot. `own_bytes`: of layers that no other snapshot has."""

    digest: str
    names: tuple[str, ...]
    layers: int
    is_image: bool
    bytes: int
    own_bytes: int
    in_use: bool


def snapshot_usage(store: LayerStore) -> list[SnapshotUsage]:
    """Those with names first, by name, then the others."""
    named: dict[str, list[str]] = {}
    for name, digest in store.names.all().items():
        named.setdefault(digest, []).append(name)
    in_use, _ = leases(store.live)
    records = {path.name: _record(path.read_bytes()) for path in store.snapshots.iterdir() if path.name[0] != "."}
    uses = Counter(digest for snapshot in records.values() for digest in set(snapshot.layers))
    sizes = {digest: store.manifest(digest).size_bytes for digest in uses if store.layer(digest).exists()}
    found = [
        SnapshotUsage(
            digest,
            tuple(named.get(digest, ())),
            len(snapshot.layers),
            snapshot.is_image,
            sum(sizes.get(layer, 0) for layer in snapshot.layers),
            sum(sizes.get(layer, 0) for layer in snapshot.layers if uses[layer] == 1),
            digest in in_use,
        )
        for digest, snapshot in records.items()
    ]
    return sorted(found, key=lambda one: (not one.names, one.names, one.digest))


def _record(text: bytes) -> Snapshot:
    try:
        return Snapshot.parse(text)
    except (ValueError, KeyError, TypeError):
        return Snapshot()
