"""Which documents are copies of which, and the one of each cluster that is kept."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from etude.core.files import replacing


class Clusters:
    """`kept[n]` is the number of the document kept in place of document n: the id of its cluster. Four bytes a document."""

    def __init__(self, kept: NDArray[np.uint32]) -> None:
        self.kept = kept

    def __len__(self) -> int:
        return len(self.kept)

    def keep(self, number: int) -> bool:
        return int(self.kept[number]) == number

    def cluster(self, number: int) -> int:
        """The cluster's id; a document without a copy is a cluster of its own."""
        return int(self.kept[number])

    def size(self, number: int) -> int:
        """Documents in this one's cluster."""
        return int(self._sizes[self.kept[number]])

    @cached_property
    def _sizes(self) -> NDArray[np.uint32]:
        """By cluster id; 0 elsewhere."""
        return np.bincount(self.kept, minlength=len(self.kept)).astype(np.uint32)

    def sizes(self) -> dict[int, int]:
        """How many clusters there are of each size, from small to large."""
        sizes, counts = np.unique(self._sizes[self._sizes > 0], return_counts=True)
        return dict(zip(sizes.tolist(), counts.tolist(), strict=True))

    def save(self, path: Path) -> None:
        """To one file, which appears whole or not at all."""
        with replacing(path) as file:
            np.save(file, self.kept)

    @staticmethod
    def load(path: Path) -> Clusters:
        return Clusters(np.load(path))
