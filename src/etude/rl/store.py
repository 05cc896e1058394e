"""Finished groups on disk: one compressed file per group, written whole or not at all, so that they outlive a kill.

Layout before zstd: an 8-byte length, a JSON header (rollouts with the shape of each array), then the arrays in order.
Level 1: a group of 8 short rollouts takes about a millisecond, and the controller writes it between two rollouts.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from etude.trace.segment import Rollout, Segment

ARRAYS = ("ids", "sampled", "logprobs", "versions", "routes")


class GroupStore:
    """`groups/000123.zst` by group index. Trainer processes read the same files, so no array crosses a pipe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, group: int) -> Path:
        return self.folder / f"{group:06d}.zst"

    def groups(self) -> list[int]:
        """The numbers of the stored groups, in order."""
        return sorted(int(path.stem) for path in self.folder.glob("*.zst"))

    def save(self, group: int, rollouts: list[Rollout]) -> None:
        """Write to a side file, then rename: a reader never sees half a group."""
        target = self.path(group)
        side = target.with_suffix(".tmp")
        with open(side, "wb") as file:
            file.write(zstandard.compress(_pack(rollouts), 1))
            file.flush()
            os.fsync(file.fileno())
        side.rename(target)

    def load(self, group: int) -> list[Rollout]:
        """The rollouts in slot order; raises FileNotFoundError."""
        return _unpack(zstandard.decompress(self.path(group).read_bytes()))


def _pack(rollouts: list[Rollout]) -> bytes:
    headers: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for rollout in rollouts:
        header = {name: value for name, value in asdict(_bare(rollout)).items() if name != "segments"}
        header["segments"] = []
        for segment in rollout.segments:
            shapes: dict[str, list[Any]] = {}
            for name in ARRAYS:
                array = getattr(segment, name)
                if array is not None:
                    shapes[name] = [array.dtype.str, list(array.shape)]
                    blobs.append(np.ascontiguousarray(array).tobytes())
            header["segments"].append(shapes)
        headers.append(header)
    head = json.dumps(headers).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *blobs])


def _bare(rollout: Rollout) -> Rollout:
    """The rollout without its arrays (asdict would copy them)."""
    return Rollout(rollout.id, rollout.task_id, rollout.group, [], rollout.rewards, rollout.counters, rollout.info)


def _unpack(data: bytes) -> list[Rollout]:
    size = int.from_bytes(data[:8], "little")
    headers = json.loads(data[8 : 8 + size])
    at = 8 + size
    rollouts = []
    for header in headers:
        segments = []
        for shapes in header.pop("segments"):
            arrays: dict[str, np.ndarray] = {}
            for name, (dtype, shape) in shapes.items():
                count = int(np.prod(shape))
                arrays[name] = np.frombuffer(data, dtype, count, at).reshape(shape).copy()
                at += arrays[name].nbytes
            segments.append(Segment(**arrays))
        rollouts.append(Rollout(segments=segments, **header))
    return rollouts
