"""What is known of each document, in a file of records of one size: a record's place is its document's number.

Read by blocks or by numbers, never mapped into memory: the kernel would count every page that was looked at as this process's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from etude.learn.corpus.dedup.minhash import PLACES, SHINGLE_TOKENS, Signature

# Which documents belong together: union-find over arrays, without a loop over pairs.


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


RECORD = np.dtype(
    [("digest", "<u8", (2,)), ("rank", "<u4"), ("signed", "<u4"), ("signature", "<u2", (PLACES,))]
)  # 280 bytes
BLOCK_DOCUMENTS = 1 << 14  # 4.6 MB
# Records with fewer others between them are read in one go: 18 KB cost hardly more than one record.
GAP = 64

Rows = NDArray[np.void]


class Records:
    """A file in `folder`; what a killed run left of it is cut to whole records."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # The name says the format, so that another one is never taken for this.
        self._path = folder / f"documents-{PLACES}x{SHINGLE_TOKENS}.bin"
        self._file = self._path.open("ab+")
        self._count = self._path.stat().st_size // RECORD.itemsize
        self.cut(self._count)

    def __len__(self) -> int:
        return self._count

    def append(self, digest: str, rank: int, signature: Signature | None) -> int:
        """The document's number. `digest` is SHA-256 in hexadecimal."""
        if len(digest) != 64:
            raise ValueError(f"digest {digest!r} of document {self._count}: give SHA-256 in hexadecimal")
        row = np.zeros(1, dtype=RECORD)
        row["digest"] = np.frombuffer(bytes.fromhex(digest)[:16], dtype="<u8")
        row["rank"] = rank
        if signature is not None:
            row["signed"], row["signature"] = 1, signature
        self._file.write(row.tobytes())
        self._count += 1
        return self._count - 1

    def cut(self, count: int) -> None:
        """Forgets the documents from number `count` on."""
        if count > self._count:
            raise ValueError(
                f"{self._path} holds {self._count} documents, fewer than the {count} to cut it to; start it again"
            )
        self._file.flush()
        self._file.truncate(count * RECORD.itemsize)
        self._count = count

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def blocks(self) -> Iterator[tuple[Numbers, Rows]]:
        """Numbers and records, block by block."""
        for start in range(0, self._count, BLOCK_DOCUMENTS):
            numbers = np.arange(start, min(start + BLOCK_DOCUMENTS, self._count), dtype=np.uint32)
            yield numbers, self._span(start, len(numbers))

    def at(self, numbers: Numbers) -> Rows:
        """(n,) the records of these documents, in their order."""
        wanted, where = np.unique(numbers, return_inverse=True)
        rows = np.empty(len(wanted), dtype=RECORD)
        ends = [*(np.flatnonzero(np.diff(wanted.astype(np.int64)) > GAP) + 1).tolist(), len(wanted)]
        begin = 0
        for end in ends if len(wanted) else []:
            first, last = int(wanted[begin]), int(wanted[end - 1])
            rows[begin:end] = self._span(first, last - first + 1)[wanted[begin:end] - first]
            begin = end
        return rows[where]

    def _span(self, first: int, count: int) -> Rows:
        size = RECORD.itemsize
        data = os.pread(self._file.fileno(), count * size, first * size)
        if len(data) < count * size:
            raise OSError(
                f"{self._path} ends before document {first + count} of {self._count}: it was cut while it was read"
            )
        return np.frombuffer(data, dtype=RECORD)
