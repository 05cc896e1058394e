"""Analysed files in, a segment's columns out; one pass, memory by the files of one segment."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

import numpy as np
import zstandard
from numpy.typing import NDArray

from etude.index.analysis import FIELDS, AnalysedFile
from etude.index.columns import Columns
from etude.index.languages import LANGUAGES
from etude.index.words import TERM_BYTES

TERM_TYPE = f"S{TERM_BYTES}"
# Text is written once and read for hits alone; level 1 packs source about four times at some 300 MB/s.
PACKING = 1
# Counts are kept in a byte; the 256th mention of a word in sixty lines says nothing new.
MOST = 255


class SegmentBuilder:
    """Takes files in the order of their paths."""

    def __init__(self) -> None:
        self.files = 0
        self._last = ""
        self._paths: list[bytes] = []
        self._texts: list[bytes] = []
        self._digests: list[bytes] = []
        self._languages: list[int] = []
        self._first_chunk = [0]
        self._lines: list[tuple[int, int]] = []
        self._lengths: list[int] = []
        self._symbols: list[bytes] = []
        self._kinds: list[bytes] = []
        self._vocabulary: dict[str, int] = {}
        self._terms, self._chunks, self._counts = array("i"), array("i"), array("I")
        self._packer = zstandard.ZstdCompressor(level=PACKING)

    def add(self, file: AnalysedFile) -> None:
        """Raises ValueError for a path that does not follow the last one: chunks of a folder must be one range."""
        if self.files and file.path <= self._last:
            raise ValueError(f"{file.path!r} after {self._last!r}: files come in the order of their paths, each once")
        self._last = file.path
        self.files += 1
        self._paths.append(file.path.encode())
        self._texts.append(self._packer.compress(file.text.encode()))
        self._digests.append(file.digest)
        self._languages.append(LANGUAGES.index(file.language))
        for made in file.chunks:
            number = len(self._lines)
            self._lines.append((made.chunk.start, made.chunk.end))
            self._lengths.append(made.length)
            self._symbols.append(made.chunk.symbol.encode())
            self._kinds.append(made.chunk.kind.encode())
            vocabulary = self._vocabulary
            self._terms.extend([vocabulary.setdefault(term, len(vocabulary)) for term in made.counts])
            self._chunks.extend([number] * len(made.counts))
            self._counts.extend(chain.from_iterable(made.counts.values()))
        self._first_chunk.append(len(self._lines))

    def columns(self) -> Columns:
        """The segment of what was added."""
        words = np.array([word.encode() for word in self._vocabulary], dtype=TERM_TYPE)
        order = np.argsort(words)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        term, chunk = rank[np.array(self._terms, np.int32)], np.array(self._chunks, np.int32)
        counts = np.minimum(np.array(self._counts, np.uint32), MOST).astype(np.uint8).reshape(-1, len(FIELDS))
        sizes = np.diff(self._first_chunk)
        return {
            **blob("paths", self._paths),
            **blob("texts", self._texts),
            **blob("symbols", self._symbols),
            **blob("kinds", self._kinds),
            "digest": np.frombuffer(b"".join(self._digests), np.uint8).reshape(self.files, -1)
            if self.files
            else NO_DIGEST,
            "language": np.array(self._languages, np.uint8),
            "first_chunk": np.array(self._first_chunk, np.int32),
            "lines": np.array(self._lines, np.int32).reshape(-1, 2),
            "length": np.array(self._lengths, np.int32),
            "file": np.repeat(np.arange(self.files, dtype=np.int32), sizes),
            **inverted(words[order], term, chunk, counts),
        }


NO_DIGEST = np.empty((0, 16), np.uint8)


def inverted(
    words: NDArray[np.bytes_], term: NDArray[np.int32], chunk: NDArray[np.int32], counts: NDArray[np.uint8]
) -> Columns:
    """Postings (P,) of sorted words, put in the order of term and chunk."""
    order = np.lexsort((chunk, term))
    starts = np.searchsorted(term[order], np.arange(len(words) + 1, dtype=np.int32))
    return {"term": words, "term_at": starts.astype(np.int64), "chunk": chunk[order], "counts": counts[order]}


def blob(name: str, entries: Sequence[bytes]) -> Columns:
    """Strings end to end, and (n + 1,) where each starts."""
    at = np.zeros(len(entries) + 1, np.int64)
    np.cumsum([len(entry) for entry in entries], out=at[1:]) if entries else None
    return {name: np.frombuffer(b"".join(entries), np.uint8), f"{name}_at": at}
