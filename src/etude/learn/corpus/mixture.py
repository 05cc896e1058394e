"""Several shard folders read as one endless stream in which each has its share of the tokens.

A source goes through its documents in seeded permutations, one after the other: none comes again before all have come. An epoch
takes from each the next `share` of as many tokens as all sources hold together, so a small source with a large share repeats
within an epoch, and a large one with a small share goes on in the next. What an epoch holds is a pure function of (seed, epoch), found
without reading those before it; tokens stay on disk behind memory maps.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from etude.learn.corpus.shards import TokenShards


class Mixture:
    """Documents of all sources, numbered through in the order of their names; `lengths` (documents,) in tokens."""

    def __init__(self, sources: Mapping[str, TokenShards], shares: Mapping[str, float], seed: int) -> None:
        """`shares` above 0, one for each of `sources`; they need not sum to 1. Raises ValueError for what doesn't fit together."""
        self.names = sorted(sources)
        if not self.names:
            raise ValueError("a mixture of no source has no documents; name at least one")
        if sorted(shares) != self.names or min(shares.values()) <= 0:
            raise ValueError(f"shares {dict(shares)} do not give each of {', '.join(self.names)} a share above 0")
        self.seed = seed
        self._shards = [sources[name] for name in self.names]
        self.lengths = np.concatenate([shards.lengths for shards in self._shards])
        self._starts = np.cumsum([0, *(len(shards) for shards in self._shards)])  # first number of each source
        self._tokens = [shards.total_tokens for shards in self._shards]
        whole = sum(shares.values())
        self._quotas = [max(1, round(self.total_tokens * shares[name] / whole)) for name in self.names]

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def contents(self) -> list[tuple[str, int]]:
        """Of each source the digest of its tokens and how many tokens an epoch takes from it."""
        return [(shards.digest, quota) for shards, quota in zip(self._shards, self._quotas, strict=True)]

    @property
    def total_tokens(self) -> int:
        """Of all sources, each counted once: the length of an epoch, up to a document of each source."""
        return sum(self._tokens)

    def document(self, number: int) -> np.ndarray:
        """(T,) view of the memory map."""
        source = int(np.searchsorted(self._starts, number, side="right")) - 1
        return self._shards[source].document(number - int(self._starts[source]))

    def source(self, numbers: np.ndarray) -> np.ndarray:
        """(D,) index into `names` of each document."""
        return np.searchsorted(self._starts, numbers, side="right") - 1

    def epoch(self, epoch: int) -> np.ndarray:
        """(D,) int64 numbers of the epoch's documents in the order they are read."""
        found = np.concatenate([self._of(source, epoch) for source in range(len(self.names))])
        return np.random.default_rng([self.seed, epoch]).permutation(found)

    def _of(self, source: int, epoch: int) -> np.ndarray:
        """Documents of one source whose first token lies in the epoch's stretch of its endless stream."""
        begin, end = epoch * self._quotas[source], (epoch + 1) * self._quotas[source]
        tokens, shards = self._tokens[source], self._shards[source]
        taken: list[np.ndarray] = []
        for turn in range(begin // tokens, (end - 1) // tokens + 1):
            order = np.random.default_rng([self.seed, source, turn]).permutation(len(shards))
            lengths = shards.lengths[order]
            first = turn * tokens + np.cumsum(lengths) - lengths
            taken.append(order[(begin <= first) & (first < end)])
        return np.concatenate(taken).astype(np.int64) + self._starts[source]
