"""MinHash signatures: the share of equal places in two of them estimates how many of the texts' shingles are common (Jaccard).

The textbook takes k hash functions and keeps each one's minimum: k passes over the shingles. Here there is one pass (one-permutation hashing): the
shingle's hash itself says the bin by its top bits, and the smallest of each bin is kept. A bin that stays empty borrows from a
bin drawn at random among the full ones, by a fixed order of its own, so that the estimate stays unbiased also for short texts ("optimal
densification", A. Shrivastava, "Optimal Densification for Fast and Accurate Minwise Hashing", ICML 2017; there each draw is with
replacement, here by a permutation a bin, which draws the same first full bin with the same chance and always ends).
Of each minimum 16 bits are kept: unequal ones agree by chance once in 65,536, far below the estimate's own spread.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from etude.core.fingerprint.shingles import Hashes, shingle, token_hashes

Signature = NDArray[np.uint16]

# A power of two, so that a bin is the top bits; 256 bytes a document. The estimate's standard deviation at Jaccard 0.7 is 0.04.
PLACES = 128
# Tokens a shingle, as The Stack, OpenCoder and datatrove have it: fewer find the idioms of a language, more see an edit twice.
SHINGLE_TOKENS = 5
# Below this a text's shingles are the licence's, the package's and the language's, hardly its own: it has no signature and
# only exact copies of it are found (short `__init__.py` and setup files).
SHORTEST_SHINGLES = 32

# Where a licence header may end; longer ones are cut off in part.
HEAD_CHARS = 20_000
# Comments before the first line of code: # but no preprocessor line, //, /* */, <!-- -->, --, ;, %.
HEAD = re.compile(
    r"(?:\s+|#(?![ \t]*(?:include|if|define|pragma|import|error|undef)\b)[^\n]*|//[^\n]*|/\*.*?\*/|<!--.*?-->|--[^\n]*|;[^\n]*|%[^\n]*)+",
    re.DOTALL,
)
OF_A_LICENCE = re.compile(r"licen[cs]e|copyright|spdx", re.IGNORECASE)


def _orders() -> NDArray[np.intp]:
    """(bin, attempt): the bins that an empty bin asks, in turn; the same on every machine."""
    state = np.random.RandomState(20_170)  # its stream is frozen by numpy's compatibility policy; a Generator's isn't
    return np.stack([state.permutation(PLACES) for _ in range(PLACES)])


ORDERS = _orders()
BORDERS = np.arange(PLACES, dtype=np.uint64) << np.uint64(64 - PLACES.bit_length() + 1)


def body(text: str) -> str:
    """The text after the comments at its head if they hold a licence: who changes only the licence header makes a copy, and
    two files that share only the header are none."""
    head = HEAD.match(text, 0, HEAD_CHARS)
    return text[head.end() :] if head and OF_A_LICENCE.search(text, 0, head.end()) else text


def shingles_of(text: str) -> Hashes:
    """Hashes of the body's shingles, sorted; repeats kept."""
    return np.sort(shingle(token_hashes(body(text)), SHINGLE_TOKENS))


def signature(shingles: Hashes) -> Signature | None:
    """(PLACES,) of sorted shingles; None for a text too short to have one (SHORTEST_SHINGLES)."""
    if len(shingles) < SHORTEST_SHINGLES:
        return None
    first = np.searchsorted(shingles, BORDERS)  # a bin's smallest is the first of it
    full = np.empty(PLACES, dtype=bool)
    full[:-1] = first[1:] > first[:-1]
    full[-1] = first[-1] < len(shingles)
    if not full.all():
        empty = np.flatnonzero(~full)
        orders = ORDERS[empty]
        first[empty] = first[orders[np.arange(len(empty)), full[orders].argmax(axis=1)]]
    return shingles[first].astype(np.uint16)  # the low bits: mixed, and free of the order


def sign(text: str) -> Signature | None:
    """The signature of a text; None for one too short to have any."""
    return signature(shingles_of(text))


def similarity(one: Signature, other: Signature) -> NDArray[np.float64]:
    """Estimated Jaccard of two signatures, or of two arrays of them row by row: (n, PLACES) -> (n,)."""
    return (one == other).mean(axis=-1)


def jaccard(one: Hashes, other: Hashes) -> float:
    """Exact share of common shingles, each counted once: what the signatures estimate."""
    one, other = np.unique(one), np.unique(other)
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common / max(1, len(one) + len(other) - common)
