"""Several segments as one without their dead files: what keeps the number of segments, and what a query costs, bounded.

Pure array work: texts and postings are moved as they are, nothing is parsed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from etude.agent.code_index.building import TERM_TYPE, blob, inverted
from etude.agent.code_index.columns import Columns
from etude.agent.code_index.segment import IndexSegment

# This many segments of one size make a bigger one; a query pays some 20 µs a term and segment.
FAN_IN = 8
# Sizes count as one within this factor.
STEP = 8
# The most chunks of a merged segment: merging holds all their postings in memory (about 40 bytes each at the peak, 70 a chunk, so some 300 MB).
LARGEST_CHUNKS = 100_000
# A segment with more deleted than live chunks is rewritten.
MOST_DEAD = 0.5


@dataclass(frozen=True)
class LiveSegment:
    """A segment and which of its files (F,) count."""

    segment: IndexSegment
    alive: NDArray[np.bool_]

    @property
    def chunks(self) -> int:
        """Living ones."""
        return int(np.diff(self.segment.first_chunk)[self.alive].sum())


@dataclass(frozen=True)
class MergedSegment:
    """`moved`: for each part, the new number of each old chunk, -1 if it is gone."""

    columns: Columns
    moved: list[NDArray[np.int32]]


def due(parts: Sequence[LiveSegment]) -> list[int]:
    """Which parts to merge now, as numbers in `parts`; [] if none need it."""
    for number, part in enumerate(parts):
        if part.segment.chunks and part.chunks < part.segment.chunks * (1 - MOST_DEAD):
            return [number]
    levels: dict[int, list[int]] = {}
    for number, part in enumerate(parts):
        if part.chunks * FAN_IN <= LARGEST_CHUNKS:
            levels.setdefault(_level(part.chunks), []).append(number)
    return next((found[:FAN_IN] for _, found in sorted(levels.items()) if len(found) >= FAN_IN), [])


def merge(parts: Sequence[LiveSegment]) -> MergedSegment:
    """The living files of all parts, by path."""
    files = sorted(
        (part.segment.paths[file], number, int(file))
        for number, part in enumerate(parts)
        for file in np.flatnonzero(part.alive)
    )
    moved = [np.full(part.segment.chunks, -1, np.int32) for part in parts]
    sizes = np.zeros(len(files), np.int64)
    made = 0
    for place, (_, number, file) in enumerate(files):
        first, last = parts[number].segment.first_chunk[file : file + 2].tolist()
        moved[number][first:last] = np.arange(made, made + last - first)
        made, sizes[place] = made + last - first, last - first
    columns = {
        **_of_files(parts, files, sizes),
        **_of_chunks([part.segment for part in parts], moved, made),
        **_postings([part.segment for part in parts], moved),
    }
    return MergedSegment(columns, moved)


def _level(chunks: int) -> int:
    level = 0
    while chunks >= STEP:
        chunks //= STEP
        level += 1
    return level


def _of_files(parts: Sequence[LiveSegment], files: Sequence[tuple[str, int, int]], sizes: NDArray[np.int64]) -> Columns:
    texts = []
    for _, number, file in files:
        columns = parts[number].segment.columns
        first, last = columns["texts_at"][file : file + 2].tolist()
        texts.append(columns["texts"][first:last].tobytes())
    digests = [parts[number].segment.digest(file) for _, number, file in files]
    return {
        **blob("paths", [path.encode() for path, _, _ in files]),
        **blob("texts", texts),
        "digest": np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16),
        "language": np.array([parts[n].segment.language[file] for _, n, file in files], np.uint8),
        "first_chunk": np.concatenate(([0], np.cumsum(sizes))).astype(np.int32),
        "file": np.repeat(np.arange(len(files), dtype=np.int32), sizes),
    }


def _of_chunks(segments: Sequence[IndexSegment], moved: Sequence[NDArray[np.int32]], made: int) -> Columns:
    lines, length = np.empty((made, 2), np.int32), np.empty(made, np.int32)
    names: dict[str, list[bytes]] = {"symbols": [b""] * made, "kinds": [b""] * made}
    for segment, new in zip(segments, moved, strict=True):
        kept = np.flatnonzero(new >= 0)
        lines[new[kept]] = segment.columns["lines"][kept]
        length[new[kept]] = segment.length[kept]
        for name, entries in names.items():
            data, at = segment.columns[name].tobytes(), segment.columns[name + "_at"].tolist()
            for old in kept.tolist():
                entries[new[old]] = data[at[old] : at[old + 1]]
    return {"lines": lines, "length": length, **blob("symbols", names["symbols"]), **blob("kinds", names["kinds"])}


def _postings(segments: Sequence[IndexSegment], moved: Sequence[NDArray[np.int32]]) -> Columns:
    """All postings of living chunks; words that only dead chunks had go."""
    words = np.unique(np.concatenate([np.empty(0, TERM_TYPE), *(segment.columns["term"] for segment in segments)]))
    terms, chunks, counts = [], [], []
    for segment, new in zip(segments, moved, strict=True):
        renamed = np.searchsorted(words, segment.columns["term"]).astype(np.int32)
        term = np.repeat(renamed, np.diff(segment.columns["term_at"]))
        chunk = new[segment.columns["chunk"]]
        kept = chunk >= 0
        terms.append(term[kept])
        chunks.append(chunk[kept])
        counts.append(segment.columns["counts"][kept])
    term = np.concatenate([np.empty(0, np.int32), *terms])
    used, term = np.unique(term, return_inverse=True)
    return inverted(
        words[used],
        term.astype(np.int32),
        np.concatenate([np.empty(0, np.int32), *chunks]),
        np.concatenate([np.empty((0, 4), np.uint8), *counts]),
    )
