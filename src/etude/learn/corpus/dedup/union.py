"""Which documents belong together: union-find over arrays, without a loop over pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint32]


class Union:
    """Four bytes a document, in memory: 10^9 documents take 4 GB, which is the one thing here that grows with the library.

    The textbook joins pair by pair; here a whole array of pairs is hooked at once, each root to the smallest root
    that it meets, until every pair shares one (Shiloach and Vishkin's parallel scheme). A root is always the smallest number of its set."""

    def __init__(self, count: int) -> None:
        self.parent: Numbers = np.arange(count, dtype=np.uint32)

    def roots(self, numbers: Numbers) -> Numbers:
        """The sets of these documents."""
        found = self.parent[numbers]
        while True:
            above = self.parent[found]
            if np.array_equal(above, found):
                self.parent[numbers] = found  # so that the next walk is short
                return found
            found = above

    def join(self, ones: Numbers, others: Numbers) -> None:
        """Each document of `ones` with its counterpart of `others`."""
        while len(ones):
            ones, others = self.roots(ones), self.roots(others)
            apart = ones != others
            ones, others = ones[apart], others[apart]
            np.minimum.at(self.parent, np.maximum(ones, others), np.minimum(ones, others))

    def all_roots(self) -> Numbers:
        """(documents,) the set of each."""
        while True:
            above = self.parent[self.parent]
            if np.array_equal(above, self.parent):
                return above
            self.parent = above
