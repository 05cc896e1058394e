"""What the trainer's logprobs were above the sampler's, token by token: one small file a group (promise 3, in detail).

A NumPy array of float16, (R, S): R rollouts in slot order, S the most sampled tokens of any, NaN behind a rollout's last. Half
precision keeps three digits of a difference, which is all that is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from etude.core.files import replacing

LARGEST = 60_000.0  # float16 ends at 65,504; a gap of that size is a fault in any case and stays finite


def write_gaps(path: Path, gaps: Sequence[np.ndarray]) -> None:
    """`gaps[i]` is (S_i,), of rollout i's sampled tokens, its segments one after another. Whole or not at all."""
    table = np.full((len(gaps), max((len(gap) for gap in gaps), default=0)), np.nan, dtype=np.float16)
    for row, gap in zip(table, gaps, strict=True):
        row[: len(gap)] = np.nan_to_num(gap, nan=LARGEST).clip(-LARGEST, LARGEST)  # NaN marks the end alone
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.save(file, table)


def read_gaps(path: Path, rollout: int) -> np.ndarray:
    """(S,) float32 of one rollout, in the order of its sampled tokens. Raises ValueError for a file of another kind."""
    row = np.load(path, mmap_mode="r", allow_pickle=False)[rollout]
    return np.asarray(row[~np.isnan(row)], dtype=np.float32)
