"""A fair sample of a library's text within a number of bytes: what merges are learnt from."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable


def sample(texts: Iterable[str], most_bytes: int, seed: int) -> list[str]:
    """Texts drawn by a hash of themselves and the seed, up to the first that doesn't fit, in the order drawn: whatever order they
    come in, the same. Memory: the sample and one text."""
    kept: list[tuple[int, str, int]] = []  # (-rank, text, bytes): the heap's first is the last one drawn
    total = 0
    for text in texts:
        data = text.encode()
        rank = int.from_bytes(hashlib.blake2b(f"{seed}:".encode() + data, digest_size=8).digest(), "big")
        heapq.heappush(kept, (-rank, text, len(data)))
        total += len(data)
        # The text that goes over the bound stays until another takes its place: nothing drawn after it can be in the sample.
        while total - kept[0][2] > most_bytes:
            total -= heapq.heappop(kept)[2]
    drawn = [text for _, text, _ in sorted(kept, reverse=True)]
    return drawn if total <= most_bytes else drawn[:-1]
