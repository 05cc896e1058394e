"""What is in a weight store, and whether it is whole: the substance of `etude weights show` and `etude weights verify`."""

from __future__ import annotations

from typing import Any

from etude.learn.weights.errors import WeightsError
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.store import WeightStore


def show(store: WeightStore) -> dict[str, Any]:
    """The store's entries, sizes and mean ratio; JSON values."""
    entries = store.index().entries
    anchors = [entry for entry in entries if entry.base is None]
    deltas = [entry for entry in entries if entry.base is not None]
    anchor_bytes = anchors[-1].bytes if anchors else 0
    ratios = [entry.bytes / max(anchor_bytes, 1) for entry in deltas]
    return {
        "newest": store.index().newest,
        "anchors": len(anchors),
        "deltas": len(deltas),
        "anchor_bytes": anchor_bytes,
        "raw_bytes": entries[-1].raw_bytes if entries else 0,
        "mean_ratio": sum(ratios) / len(ratios) if ratios else None,
        "entries": [
            {"name": e.name, "version": e.version, "base": e.base, "bytes": e.bytes, "digest": e.digest}
            for e in entries
        ],
    }


def verify(store: WeightStore) -> dict[str, Any]:
    """Checks every file against its sha256, and reaches and checks every version once, by the cheapest walk from the one
    before (an anchor beside a delta is not decoded); `problems` is empty if the store is whole."""
    problems: list[str] = []
    receiver, held = Receiver(store), None
    versions = sorted({entry.version for entry in store.index().entries})
    checked = 0
    for version in versions:
        try:
            held = receiver.catch_up(held.state if held else None, held.version if held else None, goal=version)
            checked += 1
            problems += held.refused
        except WeightsError as error:
            problems.append(f"version {version}: {error}")
    for entry in store.index().entries:
        try:
            manifest = store.manifest(entry)
            for number in range(len(manifest.shards)):
                manifest.check_shard(number, store.shard(manifest, number))
        except WeightsError as error:
            problems.append(str(error))
    return {
        "versions": len(versions),
        "reached": checked,
        "problems": list(dict.fromkeys(problems)),
        "whole": not problems,
    }
