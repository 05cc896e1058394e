"""The library's copies: documents are added while it is written, then clustered in passes over the disk with flat memory.

Adding appends one record of fixed size a document (digest, rank, signature), so that a killed run is cut back to any number of
documents by the file's length. `finish` makes two passes over the records:
1. equal digests are sorted side by side and joined (exact copies);
2. of what is left, the signature is cut into bands of few places; documents that agree in a whole band are sorted side by
   side, and pairs among them are joined if their signatures agree in `threshold` of the places.
Unlike the textbook's, a cluster is no chain: a document is never represented by one that is not like it.

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

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from etude.core.fingerprint.shingles import STEP, mix
from etude.learn.corpus.dedup.clusters import Clusters
from etude.learn.corpus.dedup.minhash import PLACES, Signature, similarity
from etude.learn.corpus.dedup.records import Numbers, Records, Union

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


# Near duplicates form chains (a like b, b like c, but a not like c), and a chain may be long. The textbook keeps one document of a connected
# component, and loses what is unlike it. Here the best document (lowest rank, then lowest number) leads only those that are like it; the
# best of the rest leads next, until none is left. So the signature of a dropped document agrees with that of its leader in `threshold` of the places.

# Pairs of signatures looked at together: 2 MB of them.
PAIRS_AT_ONCE = 1 << 12


def in_blocks(ones: Numbers, others: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """The pairs, PAIRS_AT_ONCE at a time."""
    for start in range(0, len(ones), PAIRS_AT_ONCE):
        yield ones[start : start + PAIRS_AT_ONCE], others[start : start + PAIRS_AT_ONCE]


def leaders(
    roots: Numbers,
    ranks: Callable[[Numbers], NDArray[np.uint32]],
    similarities: Callable[[Numbers, Numbers], NDArray[np.float64]],
    threshold: float,
) -> Numbers:
    """(documents,) the kept document of each: itself where it is kept. `roots` says who hangs together."""
    kept = np.arange(len(roots), dtype=np.uint32)
    members = _with_company(roots)
    order = np.empty(len(members), dtype=np.uint64)  # rank, then number
    for start in range(0, len(members), PAIRS_AT_ONCE):
        block = members[start : start + PAIRS_AT_ONCE]
        order[start : start + len(block)] = (ranks(block).astype(np.uint64) << np.uint64(32)) | block
    group = roots[members]
    while len(members):
        names, group = np.unique(group, return_inverse=True)
        best = np.full(len(names), np.iinfo(np.uint64).max, dtype=np.uint64)
        np.minimum.at(best, group, order)
        leader = best[group].astype(np.uint32)  # the number is the low half
        far = np.concatenate([similarities(a, b) < threshold for a, b in in_blocks(members, leader)])
        kept[members[~far]] = leader[~far]
        members, order, group = members[far], order[far], group[far]
    return kept


def _with_company(roots: Numbers) -> Numbers:
    """The documents in sets of two and more."""
    company = roots != np.arange(len(roots), dtype=np.uint32)
    company[roots[company]] = True
    return np.flatnonzero(company).astype(np.uint32)


# Rows sorted by a hash on disk: written in any order, read back so that equal hashes are adjacent, in flat memory.

Rows = NDArray[np.void]

# Rows read and sorted at once: 16 MiB of (hash, number), small compared with the rest and large enough to be read in one go.
ROWS_AT_ONCE = 1 << 20
# Rows held back for all partitions together before they are written: with 1,000 partitions still 1,000 rows a write.
ROWS_HELD = 1 << 20
# A power of two; beyond 4 * 10^9 rows (100 million documents) a partition grows instead.
MOST_PARTITIONS = 4096


class Partitions:
    """Rows of `dtype`, whose first field `hash` is an even uint64, in one file for each range of hashes. A file is
    opened for a write only, so that their number is bound by no limit of open files."""

    def __init__(self, folder: Path, dtype: np.dtype, expected_rows: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("part-*.bin"):  # of a run that was killed
            old.unlink()
        self._folder, self._dtype = folder, dtype
        self._count = min(MOST_PARTITIONS, 1 << (expected_rows // ROWS_AT_ONCE).bit_length())
        self._held: list[Rows] = []
        self._held_rows = 0

    def add(self, rows: Rows) -> None:
        self._held.append(rows)
        self._held_rows += len(rows)
        if self._held_rows >= ROWS_HELD:
            self._write()

    def sorted(self) -> Iterator[Rows]:
        """The rows, range by range, each sorted by all fields; the files are gone afterwards."""
        self._write()
        for number in range(self._count):
            path = self._path(number)
            if path.exists():
                rows = np.fromfile(path, dtype=self._dtype)
                path.unlink()
                yield rows[np.lexsort([rows[name] for name in reversed(self._dtype.names or ())])]

    def _write(self) -> None:
        if not self._held:
            return
        rows = np.concatenate(self._held)
        self._held, self._held_rows = [], 0
        shift = 64 - self._count.bit_length() + 1
        part = rows["hash"] >> np.uint64(shift) if shift < 64 else np.zeros(len(rows), dtype=np.uint64)
        order = np.argsort(part, kind="stable")
        rows, part = rows[order], part[order]
        borders = np.searchsorted(part, np.arange(self._count + 1, dtype=np.uint64))
        for number in range(self._count):
            if borders[number + 1] > borders[number]:
                with self._path(number).open("ab") as file:
                    rows[borders[number] : borders[number + 1]].tofile(file)

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:04d}.bin"
