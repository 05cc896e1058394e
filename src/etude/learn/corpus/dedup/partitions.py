"""Rows sorted by a hash on disk: written in any order, read back so that equal hashes stand side by side, in flat memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]

# Rows read and sorted at once: 16 MiB of (hash, number), small beside the rest and large enough to be read in one go.
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
