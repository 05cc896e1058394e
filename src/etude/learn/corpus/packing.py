"""Documents into rows of a fixed length, and dialogues into batches of like length.

A packed epoch is the mixture's documents laid end to end, cut every `length` tokens; the cuts are then read
in a seeded order too, so that a batch is not made of one long file. A row is a pure function of (epoch, row number): the
cursor is two integers, and a resumed run reads exactly the rows that were left (promise 6). Document numbers let attention
stay inside a document; a document cut by a row end goes on in another row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from etude.learn.corpus.mixture import Mixture


@dataclass
class Cursor:
    """Where reading goes on."""

    epoch: int = 0
    row: int = 0


@dataclass(frozen=True)
class PackedRow:
    """`documents[t]` numbers the document of token t inside this row, from 0; positions restart with each."""

    ids: np.ndarray  # (T,) int64
    documents: np.ndarray  # (T,) int64


class PackedRows:
    """Endless rows of a mixture. The tail of an epoch that does not fill a row is left out."""

    def __init__(self, mixture: Mixture, length: int, cursor: Cursor | None = None) -> None:
        if mixture.total_tokens < length:
            raise ValueError(
                f"the corpus has {mixture.total_tokens} tokens, fewer than one row of {length}; add text or shorten rows"
            )
        self.mixture = mixture
        self.length = length
        self.cursor = cursor or Cursor()
        self._epoch_laid_out = -1
        self._order = np.empty(0, np.int64)
        self._ends = np.empty(0, np.int64)
        self._cuts = np.empty(0, np.int64)

    def rows_of(self, epoch: int) -> int:
        """Rows of an epoch; a few tokens more or less make it differ between epochs."""
        self._lay_out(epoch)
        return len(self._cuts)

    def next(self) -> PackedRow:
        """The row at the cursor; moves the cursor."""
        while self.cursor.row == self.rows_of(self.cursor.epoch):
            self.cursor = Cursor(self.cursor.epoch + 1, 0)
        row = self.row(self.cursor.epoch, self.cursor.row)
        self.cursor.row += 1
        return row

    def row(self, epoch: int, row: int) -> PackedRow:
        """Row number `row` of an epoch."""
        self._lay_out(epoch)
        start = int(self._cuts[row]) * self.length
        stop = start + self.length
        ids = np.empty(self.length, np.int64)
        documents = np.empty(self.length, np.int64)
        place = int(np.searchsorted(self._ends, start, side="right"))  # first document that ends behind `start`
        filled = number = 0
        while filled < self.length:
            tokens = self.mixture.document(int(self._order[place]))
            begin = int(self._ends[place]) - len(tokens)
            piece = tokens[max(0, start - begin) : stop - begin]
            ids[filled : filled + len(piece)] = piece
            documents[filled : filled + len(piece)] = number
            filled, number, place = filled + len(piece), number + 1, place + 1
        return PackedRow(ids, documents)

    def _lay_out(self, epoch: int) -> None:
        if epoch == self._epoch_laid_out:
            return
        self._order = self.mixture.epoch(epoch)
        self._ends = np.cumsum(self.mixture.lengths[self._order])
        rng = np.random.default_rng([self.mixture.seed, epoch, self.length])
        self._cuts = rng.permutation(int(self.mixture.lengths[self._order].sum()) // self.length)
        self._epoch_laid_out = epoch


def bucket_by_length(lengths: np.ndarray, batch_tokens: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Batches (index arrays) of like length whose padded size (rows x longest) stays within `batch_tokens`.

    Every index occurs exactly once. Equal lengths are mixed and the order of the batches is shuffled, both by
    (seed, epoch). An item longer than `batch_tokens` makes a batch of its own.
    """
    rng = np.random.default_rng([seed, epoch])
    # Jitter of up to 10%, so that an epoch does not always meet the same neighbours.
    order = np.argsort(lengths * rng.uniform(1.0, 1.1, len(lengths)), kind="stable")
    batches: list[np.ndarray] = []
    start, longest = 0, 0
    for stop, index in enumerate(order):
        longest = max(longest, int(lengths[index]))
        if stop > start and longest * (stop - start + 1) > batch_tokens:
            batches.append(order[start:stop])
            start, longest = stop, int(lengths[index])
    if len(order):
        batches.append(order[start:])
    return [batches[i] for i in rng.permutation(len(batches))]
