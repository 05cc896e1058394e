"""Where batches come from: a mixture of shard folders, as packed rows or as pieces of like length; dialogues, in buckets of like length;
another rank, which reads the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import xxhash

from etude.core.trace.segment import Segment
from etude.learn.corpus.mixture import Mixture
from etude.learn.corpus.packing import Cursor, PackedRows, bucket_by_length
from etude.learn.parallel.shared_training import SharedTraining
from etude.learn.train.batch import BatchSource, TrainBatch, padded_batch, shared_batch
from etude.learn.train.shared_prefix import SPLIT_TOKENS, TokenTree, TreeMask, common_prefix

# Share of all tokens that the common beginning has to make up to be computed once.
SHARED_SHARE = 0.25


class PackedSource:
    """Endless batches of packed rows. Every token counts alike; no document predicts the start of the next."""

    total_batches: int | None = None

    def __init__(self, rows: PackedRows, batch_rows: int) -> None:
        self._rows = rows
        self._batch_rows = batch_rows
        self.digest, self.former_digest = _digests([batch_rows, rows.length], rows.mixture)

    def next(self) -> TrainBatch:
        rows = [self._rows.next() for _ in range(self._batch_rows)]
        return packed_batch([row.ids for row in rows], [row.documents for row in rows])

    def state(self) -> dict[str, Any]:
        return vars(self._rows.cursor).copy()

    def restore(self, state: dict[str, Any]) -> None:
        self._rows.cursor = Cursor(**state)


def packed_batch(ids: Sequence[np.ndarray], documents: Sequence[np.ndarray]) -> TrainBatch:
    """Rows of equal length; weight 1 wherever the token before belongs to the same document."""
    documents_BT = torch.from_numpy(np.stack(documents))
    weights = torch.zeros(documents_BT.shape)
    weights[:, 1:] = (documents_BT[:, 1:] == documents_BT[:, :-1]).float()
    return TrainBatch(
        torch.from_numpy(np.stack(ids)), weights, torch.ones_like(documents_BT, dtype=torch.bool), documents_BT
    )


class PieceSource:
    """Endless batches of documents, cut into pieces of at most `piece_tokens`, in buckets of like length; every token counts alike.

    Each piece of an epoch's documents occurs once. Where documents are short, attention over rows of one document wastes less than over
    packed rows, which are padded to the longest document of the batch.
    """

    total_batches: int | None = None

    def __init__(self, mixture: Mixture, piece_tokens: int, batch_tokens: int) -> None:
        if mixture.lengths.max() < 2:
            raise ValueError(
                f"none of {len(mixture)} documents is longer than a token: there is nothing to predict; add text"
            )
        self._mixture = mixture
        self._piece_tokens = piece_tokens
        self._batch_tokens = batch_tokens
        self.digest, self.former_digest = _digests([piece_tokens, batch_tokens], mixture)
        self._epoch = self._batch = 0
        self._lay_out()

    def next(self) -> TrainBatch:
        while self._batch == len(self._batches):
            self._epoch, self._batch = self._epoch + 1, 0
            self._lay_out()
        chosen = self._pieces[self._batches[self._batch]]
        self._batch += 1
        ids = [self._mixture.document(int(number))[start:stop] for number, start, stop in chosen]
        return padded_batch(ids, [_all_but_first(len(row)) for row in ids])

    def state(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "batch": self._batch}

    def restore(self, state: dict[str, Any]) -> None:
        self._epoch, self._batch = state["epoch"], state["batch"]
        self._lay_out()

    def _lay_out(self) -> None:
        """The epoch's pieces (P, 3) document, start, stop, and its batches of them."""
        order = self._mixture.epoch(self._epoch)
        lengths = self._mixture.lengths[order]
        counts = -(-lengths // self._piece_tokens)
        firsts = np.repeat(np.cumsum(counts) - counts, counts)
        starts = (np.arange(len(firsts)) - firsts) * self._piece_tokens
        stops = np.minimum(starts + self._piece_tokens, np.repeat(lengths, counts))
        pieces = np.stack([np.repeat(order, counts), starts, stops], 1)
        self._pieces = pieces[stops - starts > 1]  # a lone token predicts nothing
        self._batches = bucket_by_length(
            self._pieces[:, 2] - self._pieces[:, 1], self._batch_tokens, self._mixture.seed, self._epoch
        )


def _all_but_first(length: int) -> np.ndarray:
    weights = np.ones(length, np.float32)
    weights[0] = 0.0
    return weights


class DialogueSource:
    """Batches of whole segments, padded, each segment once an epoch.

    Segments of a large model's harness all begin with the same tools. With `share` a batch computes such a beginning (`prefix` tokens) once, and
    `batch_tokens` counts what follows it.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        *,
        batch_tokens: int,
        observation_weight: float,
        prompt_weight: float,
        epochs: float,
        seed: int,
        share: bool = False,
    ) -> None:
        self._ids = [np.asarray(segment.ids) for segment in segments]
        self._weights = [token_weights(segment, observation_weight, prompt_weight) for segment in segments]
        self._lengths = np.array([len(segment) for segment in segments], np.int64)
        self._batch_tokens = batch_tokens
        self._seed = seed
        self.prefix = _worthwhile_prefix(self._ids) if share else 0
        shared = [self.prefix] if self.prefix else []
        self.digest = _digest([batch_tokens, seed, *shared], [*self._ids, *self._weights])
        self._epoch = self._batch = 0
        self._batches = self._epoch_batches()
        # Epochs differ by a batch or two because lengths are jittered; the first one sets the measure.
        self.total_batches: int | None = max(1, round(len(self._batches) * epochs))
        self._given = 0

    def next(self) -> TrainBatch | None:
        if self._given >= (self.total_batches or 0):
            return None
        if self._batch == len(self._batches):
            self._epoch, self._batch = self._epoch + 1, 0
            self._batches = self._epoch_batches()
        chosen = self._batches[self._batch]
        self._batch += 1
        self._given += 1
        make = shared_batch if self.prefix else padded_batch
        return make([self._ids[i] for i in chosen], [self._weights[i] for i in chosen])

    def state(self) -> dict[str, Any]:
        return {"epoch": self._epoch, "batch": self._batch, "given": self._given}

    def restore(self, state: dict[str, Any]) -> None:
        self._epoch, self._batch, self._given = state["epoch"], state["batch"], state["given"]
        self._batches = self._epoch_batches()

    def _epoch_batches(self) -> list[np.ndarray]:
        return bucket_by_length(self._lengths - self.prefix, self._batch_tokens, self._seed, self._epoch)


class DealtSource:
    """A `BatchSource` on every rank of `shared`: the first one draws from `source`, and all get what it drew."""

    def __init__(self, source: BatchSource | None, shared: SharedTraining) -> None:
        self._source, self._shared = source, shared
        facts = None
        if source is not None:
            digest = getattr(source, "digest", "")
            facts = [source.total_batches, digest, getattr(source, "former_digest", digest)]
        self.total_batches, self.digest, self.former_digest = shared.same(facts)

    def next(self) -> TrainBatch | None:
        drawn = None if self._source is None else self._source.next()
        return _unpacked(self._shared.same(None if drawn is None else _packed(drawn)))

    def state(self) -> dict[str, Any]:
        return {} if self._source is None else self._source.state()  # the first rank's is saved

    def restore(self, state: dict[str, Any]) -> None:
        if self._source is not None:
            self._source.restore(state)


def _packed(batch: TrainBatch) -> dict[str, Any]:
    rows = None
    if batch.tree is not None:
        tree = batch.tree.tree
        rows = [torch.from_numpy(np.asarray(tree.ids[nodes])) for nodes in tree.rows]
    return {"ids": batch.ids, "weights": batch.weights, "real": batch.real, "documents": batch.documents, "rows": rows}


def _unpacked(packed: dict[str, Any] | None) -> TrainBatch | None:
    if packed is None:
        return None
    rows = packed.pop("rows")
    tree = None if rows is None else TreeMask(TokenTree([row.numpy() for row in rows], [None] * len(rows)))
    return TrainBatch(**packed, tree=tree)


def _worthwhile_prefix(sequences: Sequence[np.ndarray]) -> int:
    """Tokens that all sequences begin with, where sharing them is quicker than rows of like length; else 0."""
    first = sequences[0]
    prefix = min(common_prefix(first, other) for other in sequences)
    prefix = min(prefix, min(map(len, sequences)) - 1)  # each has a token behind it
    whole = sum(map(len, sequences))
    return prefix if prefix >= SPLIT_TOKENS and prefix * len(sequences) >= SHARED_SHARE * whole else 0


def _digests(numbers: Sequence[int], mixture: Mixture) -> tuple[str, str]:
    """Of a mixture as it is read: by its lengths, its tokens and its quotas; and as earlier releases had it, by lengths alone."""
    former = _digest([*numbers, mixture.seed], [mixture.lengths])
    return _digest([former, *mixture.contents], []), former


def _digest(numbers: Sequence[object], arrays: Sequence[np.ndarray]) -> str:
    """XXH3-128 of numbers, and of arrays with their types and lengths."""
    found = xxhash.xxh3_128(repr(list(numbers)).encode())
    for array in arrays:
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def token_weights(segment: Segment, observation_weight: float, prompt_weight: float) -> np.ndarray:
    """(T,) float32: 1 for sampled tokens, `prompt_weight` before the first of them, `observation_weight` after it."""
    weights = np.full(len(segment), prompt_weight, np.float32)
    if segment.sampled.any():
        first = int(segment.sampled.argmax())
        weights[first:] = np.where(segment.sampled[first:], 1.0, observation_weight)
    weights[0] = 0.0  # nothing comes before it
    return weights
