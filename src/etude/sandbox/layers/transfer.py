"""A snapshot from one store into another, layer by layer: each checked against its digest, and held until the snapshot is entered.

A layer travels as `pack` writes it. The snapshot has the same digest in both stores, because its record and its layers are the same.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable
from typing import IO

from etude.sandbox.layers.bounds import Bounds
from etude.sandbox.layers.errors import CorruptLayer, UnknownSnapshot, UnsafeContent
from etude.sandbox.layers.manifest import LayerManifest
from etude.sandbox.layers.names import require_name
from etude.sandbox.layers.snapshot import Snapshot
from etude.sandbox.layers.store import LayerStore, PinnedSnapshot
from etude.sandbox.layers.unpack import unpack

_DIGEST = re.compile(r"[0-9a-f]{64}")


def pin_present(store: LayerStore, digests: Iterable[str]) -> PinnedSnapshot:
    """Those of these layers that are here, none of them collected while held. Not looked into."""
    asked = [digest for digest in digests if _is_digest(digest)]
    with store.lock(fcntl.LOCK_SH):
        present = tuple(digest for digest in asked if (store.layer(digest) / "manifest").exists())
        return store.record(Snapshot(present), transient=True)


def receive_layer(store: LayerStore, digest: str, archive: IO[bytes], bounds: Bounds = Bounds()) -> PinnedSnapshot:
    """One layer, out of anybody's archive. Raises LayerCorrupt where that is another one, or none at all; then nothing of it is kept."""
    with store.drafting() as draft:
        try:
            unpack(archive, draft, bounds, lambda path: True)  # every whiteout counts: what is below is not known yet
        except UnsafeContent as error:
            raise CorruptLayer(f"layer {digest[:12]}: what arrived as it is refused: {error}") from error
        found = LayerManifest.of(draft.entries).digest
        if found != digest:
            raise CorruptLayer(f"layer {digest[:12]}: what arrived as it has the digest {found[:12]}")
        return store.commit(draft, Snapshot(), transient=True)


def record_snapshot(store: LayerStore, record: bytes, name: str = "") -> PinnedSnapshot:
    """The snapshot of this record, all of whose layers are here. Raises LayerCorrupt for what is no record, UnknownSnapshot, BadName."""
    snapshot = _parsed(record)
    if snapshot.digest.startswith(name):  # asked for by its digest
        name = ""
    if name:
        require_name(name)
    with store.lock(fcntl.LOCK_SH):
        for digest in snapshot.layers:
            if not (store.layer(digest) / "manifest").exists():
                raise UnknownSnapshot(
                    f"layer {digest[:12]} of snapshot {snapshot.digest[:12]} is not here; bring it first"
                )
        store.record(snapshot).release()
    held = store.hold(snapshot.digest)  # which looks into the layers that were here before
    if name:
        store.names.give(name, snapshot.digest)
    return held


def _parsed(record: bytes) -> Snapshot:
    try:
        snapshot = Snapshot.parse(record)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLayer(f"what arrived as a snapshot's record is none ({error!r})") from None
    if not all(_is_digest(digest) for digest in snapshot.layers) or not 0 <= snapshot.base <= len(snapshot.layers):
        raise CorruptLayer("what arrived as a snapshot's record names what is no layer")
    return snapshot


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and _DIGEST.fullmatch(text) is not None
