"""A text as hashes of its tokens, and of its n-grams of tokens: what near duplicates and contamination are recognised by.

A token is a run of word bytes (letters, digits, `_`, and everything beyond ASCII) or one other visible byte; spaces and line ends
only separate, so that a reformatted text has the same tokens. There is no loop over tokens, as a textbook's `re.findall` would need:
numpy sees the bytes in blocks. Each byte is a random number (a fixed table) times B^position; a running sum then holds
every token's polynomial as a difference of two of its entries, times B^-start, since an odd B has an inverse modulo 2^64
(a Rabin-Karp hash, all windows at once). A finaliser mixes the bits: 64 of them, so that even 10^9 different tokens
are expected to share a hash in 0.03 cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

# Bytes seen at once: the arrays of eight bytes a byte then stay in a core's cache. A longer run of word bytes is cut here.
BLOCK_BYTES = 1 << 16
# Odd, so that each has an inverse modulo 2^64; else arbitrary (digits of the golden ratio and of the square root of 3).
BASE = 0x9E3779B97F4A7C15
STEP = 0xBB67AE8584CAA73B

WORD, OTHER, SPACE = 1, 2, 0


def mix(values: Hashes) -> Hashes:
    """MurmurHash3's 64-bit finaliser: every bit of the answer depends on every bit of the value; one to one."""
    values = values ^ (values >> np.uint64(33))
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def _powers(base: int, count: int) -> Hashes:
    """base^0, base^1 … modulo 2^64."""
    powers = np.full(count, base, dtype=np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def _classes() -> NDArray[np.uint8]:
    """WORD, OTHER or SPACE for each of the 256 bytes; control characters separate like spaces."""
    classes = np.full(256, OTHER, dtype=np.uint8)
    classes[:33] = classes[127] = SPACE
    classes[128:] = WORD
    word = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
    classes[np.frombuffer(word, dtype=np.uint8)] = WORD
    return classes


CLASS = _classes()
VALUE = mix(np.arange(1, 257, dtype=np.uint64) * np.uint64(STEP))
POWER = _powers(BASE, BLOCK_BYTES)
INVERSE = _powers(pow(BASE, -1, 1 << 64), BLOCK_BYTES)


def token_hashes(text: str) -> Hashes:
    """One hash a token, in the order of the text; the same token has the same hash in every text, run and machine."""
    data = np.frombuffer(text.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    parts = []
    start = 0
    while start < len(data):
        block = data[start : start + BLOCK_BYTES]
        classes = CLASS[block]
        if start + len(block) < len(data) and classes[-1] == WORD:  # a token may go on: leave it to the next block
            borders = np.flatnonzero(classes != WORD)
            if len(borders):
                block, classes = block[: borders[-1] + 1], classes[: borders[-1] + 1]
        parts.append(_block_hashes(block, classes))
        start += len(block)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def _block_hashes(block: NDArray[np.uint8], classes: NDArray[np.uint8]) -> Hashes:
    """The tokens' hashes of at most BLOCK_BYTES bytes."""
    word = classes == WORD
    begins = classes == OTHER
    ends = begins.copy()
    begins |= word
    begins[1:] &= ~(word[1:] & word[:-1])
    ends |= word
    ends[:-1] &= ~(word[:-1] & word[1:])
    starts, lasts = np.flatnonzero(begins), np.flatnonzero(ends)
    terms = VALUE[block]
    terms *= POWER[: len(block)]
    sums = np.add.accumulate(terms)
    hashes = sums[lasts]
    hashes -= sums[starts]
    hashes += terms[starts]
    hashes *= INVERSE[starts]
    return mix(hashes)


def shingle(hashes: Hashes, n: int) -> Hashes:
    """One well-mixed hash for each n tokens in a row, in order, repeats kept: `len(hashes) - n + 1` of them, none where a text has fewer
    than n tokens."""
    if n < 1:
        raise ValueError(f"a shingle of {n} tokens: take 1 or more")
    count = len(hashes) - n + 1
    if count < 1:
        return np.zeros(0, dtype=np.uint64)
    total = hashes[:count].copy()
    for offset in range(1, n):
        total *= np.uint64(STEP)
        total += hashes[offset : offset + count]
    return mix(total)
