"""What weight sync costs on this machine: the substance of `etude weights bench`.

Rates are of one thread: its CPU time, so that other work on the machine counts as little as may be, medians over repeats
taken in turns with a copy of the same bytes, which says how fast the memory was in that minute. Rates are bytes of the full
state per second, for that has to be synced; what travels is smaller by `wire_share`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.learn.weights.codec import decode, encode
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.receiver import Receiver
from etude.learn.weights.state import State, bits, elements, state_digest
from etude.learn.weights.store import WeightManifest, WeightStore

# What the extrapolation supposes: a model of the size of the published setting, served in bf16, and one host of each side.
GIANT_PARAMETERS = 1_000_000_000_000
GIANT_CORES = 64
GIANT_GBIT_S = 10.0
# Promised in docs/weights.md, for bf16.
BARS = {"encode_gb_s": 1.0, "apply_gb_s": 2.0, "wire_share": 0.02}


def measure(before: State, after: State, repeats: int, place: Path | str | None = None) -> dict[str, Any]:
    """Change rate, sizes, rates per core and the way through a store (at `place`, else a temporary folder); JSON values."""
    full = sum(tensor.numel() * tensor.element_size() for tensor in after.values())
    known = state_digest(before)
    delta, blobs = _encoded(after, base=before, base_version=0, base_digest=known)
    anchor, whole = _encoded(after)
    if state_digest(decode(delta, blobs.__getitem__, before)) != state_digest(after):
        raise AssertionError("the decoded state is not the encoded one, bit for bit")  # decode checks it too
    works: dict[str, Callable[[], Any]] = {
        "memcpy": lambda: _copy(after),
        "encode": lambda: _encoded(after, base=before, base_version=0, base_digest=known),
        "apply": lambda: decode(delta, blobs.__getitem__, before),
        "encode_anchor": lambda: _encoded(after),
        "apply_anchor": lambda: decode(anchor, whole.__getitem__),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rates = {f"{name}_gb_s": full / seconds / 1e9 for name, seconds in _medians(works, repeats).items()}
    finally:
        torch.set_num_threads(threads)
    changed = sum(int(np.count_nonzero(elements(after[n]) != elements(before[n]))) for n in after)
    document = {
        "raw_bytes": full,
        "repeats": repeats,
        "changed_share": changed / max(sum(tensor.numel() for tensor in after.values()), 1),
        "changed_bytes_share": _changed_bytes(before, after) / max(full, 1),
        "delta_bytes": delta.bytes,
        "anchor_bytes": anchor.bytes,
        "wire_share": delta.bytes / max(full, 1),
        "wire_share_of_anchor": delta.bytes / max(anchor.bytes, 1),
        **rates,
        **_through_a_store(before, after, place),
    }
    document["bars"] = {
        name: {"bar": bar, "met": document[name] <= bar if name == "wire_share" else document[name] >= bar}
        for name, bar in BARS.items()
    }
    document["extrapolated"] = extrapolate(document)
    return document


def extrapolate(measured: dict[str, Any]) -> dict[str, Any]:
    """What the measured rates would make of a model of 1T bf16 parameters; arithmetic, not a measurement."""
    full = 2 * GIANT_PARAMETERS
    wire = full * measured["wire_share"]
    return {
        "is_extrapolation": True,
        "parameters": GIANT_PARAMETERS,
        "cores": GIANT_CORES,
        "gbit_s": GIANT_GBIT_S,
        "full_bytes": full,
        "wire_bytes": int(wire),
        "encode_s": full / (measured["encode_gb_s"] * 1e9 * GIANT_CORES),
        "transfer_s": wire * 8 / (GIANT_GBIT_S * 1e9),
        "apply_s": full / (measured["apply_gb_s"] * 1e9 * GIANT_CORES),
    }


def _through_a_store(before: State, after: State, place: Path | str | None) -> dict[str, float]:
    """Wall seconds to publish an anchor and a delta and to catch up on each, with the default workers."""
    with tempfile.TemporaryDirectory(prefix="etude-weights-") as folder:
        store = WeightStore(place if place is not None else Path(folder))
        if store.index().entries:
            raise ValueError(f"{store.url} holds weights already; give the bench a place of its own")
        publisher, receiver = Publisher(store), Receiver(store)
        first = publisher.publish(before, 0, copied=True)
        start = time.perf_counter()
        held = receiver.catch_up()
        anchored = time.perf_counter() - start
        second = publisher.publish(after, 1, copied=True)
        start = time.perf_counter()
        receiver.catch_up(held.state, held.version)
        caught = time.perf_counter() - start
    return {
        "publish_anchor_s": first.seconds,
        "catch_up_anchor_s": anchored,
        "publish_delta_s": second.seconds,
        "catch_up_delta_s": caught,
    }


def _encoded(state: State, **options: Any) -> tuple[WeightManifest, list[bytes]]:
    blobs: dict[str, bytes] = {}
    manifest = encode(state, lambda record, blob: blobs.__setitem__(record.file, blob), version=1, **options)
    return manifest, [blobs[shard.file] for shard in manifest.shards]


def _medians(works: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each, taken in turns, so that a slow moment of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            start = time.thread_time()
            work()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


def _copy(state: State) -> None:
    for tensor in state.values():
        source = elements(tensor)
        np.copyto(np.empty_like(source), source)


def _changed_bytes(before: State, after: State) -> int:
    return sum(int(np.count_nonzero(bits(after[name]) != bits(before[name]))) for name in after)
