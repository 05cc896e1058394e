"""What a weight store holds and whether it is whole (`etude weights show`, with `--verify`), and states to measure a sync with."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from etude.learn.weights.errors import WeightsError
from etude.learn.weights.hf_files import INDEX, SINGLE, CheckpointError, tensor_files
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
    before (an anchor that accompanies a delta is not decoded); `problems` is empty if the store is whole."""
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


def read_state(folder: Path) -> dict[str, Tensor]:
    """The tensors of a checkpoint directory, each from the file that its index names; without index and model.safetensors those of all files.

    Raises FileNotFoundError if there are none, CheckpointError for a damaged index or file.
    """
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise FileNotFoundError(f"{folder} holds no *.safetensors; give a checkpoint directory")
    indexed = (folder / INDEX).exists() or (folder / SINGLE).exists()
    files: dict[str, frozenset[str] | None] = tensor_files(folder) if indexed else dict.fromkeys(names)
    state: dict[str, torch.Tensor] = {}
    for name, listed in files.items():
        try:
            with safe_open(folder / name, framework="pt") as tensors:
                there = set(tensors.keys())
                if absent := sorted((listed or there) - there):
                    raise CheckpointError(
                        f"{folder / name} lacks {absent[0]}, which {INDEX} says is there; the checkpoint is incomplete"
                    )
                state.update({key: tensors.get_tensor(key) for key in (listed or there)})
        except SafetensorError as error:
            raise CheckpointError(f"{folder / name} can't be read ({error}); the checkpoint is damaged") from error
    return state


# A synthetic step of RL: bf16 weights before and after one Adam update of their fp32 masters. Weights are normal with the spread of trained
# layers. The update is Adam's for gradients that are white noise, as one weight's gradient looks from step to step in RL: with beta1 = 0.9 the
# first moment of such noise has sqrt((1 - beta1) / (1 + beta1)) = 0.23 of the gradient's standard deviation, and the second moment is about its
# square, so each master moves by a normal step of 0.23 learning rates. A bf16 weight changes when its master crosses a rounding boundary.

BETA1 = 0.9
SPREAD = 0.02
# A layer of a mid-size model; the last tensor takes the rest.
TENSOR_ELEMENTS = 8 << 20


def step(raw_bytes: int, learning_rate: float, seed: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Two bf16 states of about `raw_bytes` each: before and after one step."""
    if raw_bytes < 2 or learning_rate < 0:
        raise ValueError(
            f"{raw_bytes} bytes at learning rate {learning_rate}; give at least 2 bytes and no negative rate"
        )
    generator = torch.Generator().manual_seed(seed)
    move = learning_rate * math.sqrt((1 - BETA1) / (1 + BETA1))
    before, after, left = {}, {}, raw_bytes // 2
    while left:
        size = min(left, TENSOR_ELEMENTS)
        master = SPREAD * torch.randn(size, generator=generator)
        name = f"layer.{len(before):04d}.weight"
        before[name] = master.bfloat16()
        after[name] = master.add_(torch.randn(size, generator=generator), alpha=move).bfloat16()
        left -= size
    return before, after
