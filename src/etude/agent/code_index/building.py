"""Analysed files in, a segment's columns out; one pass, memory by the files of one segment."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

import numpy as np
import zstandard
from numpy.typing import NDArray

from etude.agent.code_index.analysis import FIELDS, AnalysedFile
from etude.agent.code_index.columns import Columns
from etude.agent.code_index.languages import LANGUAGES
from etude.agent.code_index.words import TERM_BYTES, expand

TERM_TYPE = f"S{TERM_BYTES}"
# Text is written once and read for hits alone; level 1 packs source about four times at some 300 MB/s.
PACKING = 1
# Counts are kept in a byte; the 256th mention of a word in sixty lines says nothing new.
MOST = 255


class IndexSegmentBuilder:
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
        self._symbols: list[bytes] = []
        self._kinds: list[bytes] = []
        self._words = WordNumbers()
        self._said = array("i")  # the numbers of all words, field after field, chunk after chunk
        self._runs = array("i")  # how many of them each field of each chunk has
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
            self._lines.append((made.chunk.start, made.chunk.end))
            self._symbols.append(made.chunk.symbol.encode())
            self._kinds.append(made.chunk.kind.encode())
            for words in made.fields:
                self._said.extend(map(self._words.__getitem__, words))
                self._runs.append(len(words))
        self._first_chunk.append(len(self._lines))

    def columns(self) -> Columns:
        """The segment of what was added."""
        sizes = np.diff(self._first_chunk)
        digests = np.frombuffer(b"".join(self._digests), np.uint8).reshape(self.files, -1) if self.files else NO_DIGEST
        return {
            **blob("paths", self._paths),
            **blob("texts", self._texts),
            **blob("symbols", self._symbols),
            **blob("kinds", self._kinds),
            "digest": digests,
            "language": np.array(self._languages, np.uint8),
            "first_chunk": np.array(self._first_chunk, np.int32),
            "lines": np.array(self._lines, np.int32).reshape(-1, 2),
            "file": np.repeat(np.arange(self.files, dtype=np.int32), sizes),
            **count_postings(list(self._words), np.array(self._said, np.int64), np.array(self._runs, np.int64)),
        }


class WordNumbers(dict[str, int]):
    """Numbers words in the order they are first asked for."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


NO_DIGEST = np.empty((0, 16), np.uint8)


def count_postings(words: Sequence[str], said: NDArray[np.int64], runs: NDArray[np.int64]) -> Columns:
    """Postings and lengths of chunks whose fields say the words `said`, `runs` of them each (chunks x FIELDS). All at once, by sorting:
    a loop over the words of each chunk takes as long as everything else together."""
    fields, chunks = len(FIELDS), len(runs) // len(FIELDS)
    slot = np.repeat(np.arange(len(runs)), runs)  # chunk * fields + field
    key, count = np.unique(slot * max(len(words), 1) + said, return_counts=True)
    slot, word = np.divmod(key, max(len(words), 1))
    vocabulary = WordNumbers()
    expanded = [[vocabulary[term] for term in expand(w)] for w in words]
    sizes = np.array([len(terms) for terms in expanded], np.int64)
    flat = np.array(list(chain.from_iterable(expanded)), np.int64)
    # Each distinct word of a slot becomes its terms.
    many = sizes[word]
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    term = flat[np.repeat((np.cumsum(sizes) - sizes)[word], many) + within] if len(flat) else flat
    slot, count = np.repeat(slot, many), np.repeat(count, many)
    in_text = np.isin(slot % fields, (0, 3))
    length = np.bincount(slot[in_text] // fields, weights=count[in_text], minlength=chunks).astype(np.int32)
    names = np.array([name.encode() for name in vocabulary], dtype=TERM_TYPE)
    rank = np.argsort(np.argsort(names))
    posting, at = np.unique(rank[term] * max(chunks, 1) + slot // fields, return_inverse=True)
    counts = np.bincount(at * fields + slot % fields, weights=count, minlength=len(posting) * fields).reshape(
        -1, fields
    )
    term, chunk = np.divmod(posting, max(chunks, 1))
    starts = np.searchsorted(term, np.arange(len(names) + 1))
    return {
        "length": length,
        "term": np.sort(names),
        "term_at": starts.astype(np.int64),
        "chunk": chunk.astype(np.int32),
        "counts": np.minimum(counts, MOST).astype(np.uint8),
    }


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
