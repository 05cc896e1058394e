"""The library's copies: documents are added while it is written, then clustered in passes over the disk with flat memory.

Adding appends one record of fixed size a document (digest, rank, signature), so that a killed run is cut back to any number of
documents by the file's length. `finish` makes two passes over the records:
1. equal digests are sorted side by side and joined (exact copies);
2. of what is left, the signature is cut into bands of few places; documents that agree in a whole band are sorted side by
   side, and pairs among them are joined if their signatures agree in `threshold` of the places.
Unlike the textbook's, a cluster is no chain: `leaders.py` lets nobody stand for a document that is not like it.

On disk: 280 bytes a document, and while `finish` runs 12 bytes a document and band. In memory: about ten bytes a document (union.py,
the answer), thirty more for each copy, and a few blocks.

THRESHOLD by measurement: 5,000 Python files of the standard library and installed packages, every fourth of at least 32 shingles also
planted as an edited copy (`tests/learn/corpus/dedup/edits.py`: names, licence header, format, functions, 5 to 10% of the lines; one to
three of these together). Found = copy and original in one cluster; false = dropped though the exact Jaccard with the kept one is below 0.5,
of all dropped and of those dropped for an unplanted file:

    threshold                    0.50   0.55   0.60   0.65   0.70   0.75   0.80
    found                        .975   .968   .961   .946   .925   .904   .852
    found, >= 128 shingles       .995   .995   .993   .987   .976   .962   .912
    false, all                   .021   .002   .001   0      0      0      0
    false, unplanted             .091   .006   .007   0      0      0      0

32 bands of 4 found 0.1% more at twice the pairs; chains instead of leaders gave 1.1% false at 0.60.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from etude.core.fingerprint.shingles import STEP, mix
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.dedup.leaders import in_blocks, leaders
from etude.learn.corpus.dedup.minhash import PLACES, Signature, similarity
from etude.learn.corpus.dedup.partitions import Partitions
from etude.learn.corpus.dedup.records import Records
from etude.learn.corpus.dedup.union import Numbers, Union

EXACT = np.dtype([("hash", "<u8"), ("rest", "<u8"), ("number", "<u4")])
BAND = np.dtype([("hash", "<u8"), ("number", "<u4")])

# Both bars (95% found, 1% false) are held with room: see above.
THRESHOLD = 0.6
# Two documents of Jaccard 0.6 share a band of 25 with a chance of 87%, of 0.7 with 99%, of 0.2 with 1%.
BAND_PLACES = 5
BANDS = PLACES // BAND_PLACES
# A document is compared with this many that follow it among those that share a band with it: all pairs in the usual small group, and
# no quadratic work where a thousand files share an idiom; joined documents are not compared again.
NEIGHBOURS = 8


class DedupIndex:
    """A folder. Opening an existing one goes on behind its last whole record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records = Records(folder)

    def __len__(self) -> int:
        return len(self._records)

    def __enter__(self) -> DedupIndex:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(self, digest: str, rank: int, signed: Signature | None) -> int:
        """Takes a document (SHA-256 of its text in hexadecimal; lower rank is kept first) and returns its number, counted from 0.
        `signed` is `minhash.sign` of its text, which any process may have made."""
        return self._records.append(digest, rank, signed)

    def flush(self) -> None:
        """What was added is in the file."""
        self._records.flush()

    def cut(self, count: int) -> None:
        """Forgets the documents from number `count` on. Raises ValueError if there are fewer."""
        self._records.cut(count)

    def close(self) -> None:
        self._records.close()

    def finish(self, threshold: float = THRESHOLD) -> Clusters:
        """Clusters of documents whose signatures' similarity reaches `threshold` (an estimate of their shingles' Jaccard)."""
        if not 0 < threshold <= 1:
            raise ValueError(f"near-duplicate threshold {threshold}: give a share above 0 and up to 1")
        self.flush()
        union = Union(len(self))
        self._join_exact(union)
        self._join_near(union, threshold)
        return Clusters(leaders(union.all_roots(), self._ranks, self._similarity, threshold))

    def _join_exact(self, union: Union) -> None:
        parts = Partitions(self._folder / "sorting", EXACT, len(self))
        for numbers, rows in self._records.blocks():
            exact = np.empty(len(rows), dtype=EXACT)
            exact["hash"], exact["rest"] = rows["digest"].T
            exact["number"] = numbers
            parts.add(exact)
        for exact in parts.sorted():
            same = (exact["hash"][1:] == exact["hash"][:-1]) & (exact["rest"][1:] == exact["rest"][:-1])
            union.join(exact["number"][:-1][same], exact["number"][1:][same])

    def _join_near(self, union: Union, threshold: float) -> None:
        parts = Partitions(self._folder / "sorting", BAND, len(self) * BANDS)
        for numbers, rows in self._records.blocks():
            chosen = (rows["signed"] == 1) & (union.roots(numbers) == numbers)  # of exact copies the first only
            for hashes in band_hashes(rows["signature"][chosen]):
                band = np.empty(len(hashes), dtype=BAND)
                band["hash"], band["number"] = hashes, numbers[chosen]
                parts.add(band)
        for band in parts.sorted():
            for offset in range(1, NEIGHBOURS + 1):
                same = band["hash"][offset:] == band["hash"][:-offset]
                for a, b in in_blocks(band["number"][:-offset][same], band["number"][offset:][same]):
                    apart = union.roots(a) != union.roots(b)  # joined ones aren't read again
                    a, b = a[apart], b[apart]
                    alike = self._similarity(a, b) >= threshold
                    union.join(a[alike], b[alike])

    def _similarity(self, ones: Numbers, others: Numbers) -> NDArray[np.float64]:
        return similarity(self._records.at(ones)["signature"], self._records.at(others)["signature"])

    def _ranks(self, numbers: Numbers) -> NDArray[np.uint32]:
        return self._records.at(numbers)["rank"]


def band_hashes(signatures: NDArray[np.uint16]) -> Iterator[NDArray[np.uint64]]:
    """(n, PLACES) -> for each band n hashes, which differ between bands also where the places agree."""
    for band in range(BANDS):
        total = np.full(len(signatures), band + 1, dtype=np.uint64)
        for place in range(band * BAND_PLACES, (band + 1) * BAND_PLACES):
            total *= np.uint64(STEP)
            total += signatures[:, place]
        yield mix(total)
