"""A micro-batch of rows, padded to one length, and where batches come from."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from etude.learn.model.mask import DocumentMask
from etude.learn.train.shared_prefix import TokenTree, TreeMask


@dataclass(frozen=True)
class TrainBatch:
    """B rows of T tokens; `documents` is None where each row is one document, padded at its right with weight 0.

    `weights[b, t]` is the loss weight of *predicting* token t of row b from the tokens before it, so `weights[:, 0]` is 0,
    as is the first token of every further document. Rows that begin alike may be one `tree`: then B is 1, and the weight of a node is the sum of
    its weights in all rows.
    """

    ids: Tensor  # (B, T) int64
    weights: Tensor  # (B, T) float32
    real: Tensor  # (B, T) bool, False at padding
    documents: Tensor | None = None  # (B, T) int64
    tree: TreeMask | None = None  # of a batch of one row, whose tokens are the nodes of a tree
    whole_weight: Tensor | None = None  # of a rank's share: the weights of the whole batch together
    whole_checksum: int | None = None  # of a rank's share: that of the whole batch

    def to(self, device: torch.device) -> TrainBatch:
        """The same there; itself where it is there already."""
        if self.ids.device == device:
            return self
        documents = None if self.documents is None else self.documents.to(device)
        tree = None if self.tree is None else self.tree.to(device)
        total = None if self.whole_weight is None else self.whole_weight.to(device)
        here = (self.ids.to(device), self.weights.to(device), self.real.to(device), documents, tree, total)
        return TrainBatch(*here, self.whole_checksum)

    @property
    def rows(self) -> int:
        """Rows that a rank may have apart from others."""
        return len(self.ids) if self.tree is None else len(self.tree.tree.rows)

    def share(self, rows: Sequence[int]) -> TrainBatch:
        """The part of a rank that gets these rows. The losses of all ranks' parts add up to that of the whole, and so do their gradients and real
        tokens. A rank without rows gets one that counts nothing, for it has to make the same forwards and backwards as the others."""
        total = self.weights.sum()
        chosen, counts = list(rows) or [0], bool(rows)
        if self.tree is not None:
            return self._share_of_tree(chosen, counts, total)
        documents = None if self.documents is None else self.documents[chosen]
        weights, real = self.weights[chosen] * counts, self.real[chosen] & counts
        return TrainBatch(self.ids[chosen], weights, real, documents, None, total, self.checksum)

    def _share_of_tree(self, chosen: list[int], counts: bool, total: Tensor) -> TrainBatch:
        """A token that several rows share counts where the first of them is."""
        assert self.tree is not None
        whole = self.tree.tree
        first: dict[int, int] = {}
        for number, row in enumerate(whole.rows):
            for node in row.tolist():
                first.setdefault(node, number)
        part = TokenTree([whole.ids[whole.rows[number]] for number in chosen], [None] * len(chosen))
        origin = np.zeros(len(part.ids), np.int64)
        for number, nodes in zip(chosen, part.rows, strict=True):
            origin[nodes] = whole.rows[number]
        own = torch.tensor([counts and first[node] in chosen for node in origin.tolist()])[None]
        ids, weights = torch.from_numpy(part.ids)[None], self.weights[:, torch.from_numpy(origin)]
        return TrainBatch(ids, weights * own, own, None, TreeMask(part), total, self.checksum)

    def mask(self) -> DocumentMask:
        """Who may attend to whom."""
        if self.tree is not None:
            return self.tree
        if self.documents is None:
            return DocumentMask.rows(*self.ids.shape)
        return DocumentMask.packed(self.documents)

    def predictions(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the P tokens with a weight: the states (P, H) among `hidden` (B, T, H) that predict them, their ids (P,), their weights (P,)."""
        at = self.weights > 0
        if self.tree is None:
            return *predicting_states(hidden, self.ids, at), self.weights[at]
        nodes = at[0].nonzero().squeeze(1)
        return hidden[0].index_select(0, self.tree.parents[nodes]), self.ids[0][nodes], self.weights[0][nodes]

    @property
    def checksum(self) -> int:
        """CRC-32 of the tokens, the same on every rank."""
        if self.whole_checksum is not None:
            return self.whole_checksum
        return zlib.crc32(self.ids.cpu().numpy().tobytes())

    @property
    def token_count(self) -> int:
        """Tokens without padding."""
        return int(self.real.sum())


class BatchSource(Protocol):
    """Gives batches; its state is plain values and says exactly which batch comes next."""

    total_batches: int | None  # None: endless
    digest: str  # names the data: a resumed run is given the same

    def next(self) -> TrainBatch | None:
        """The next batch, None at the end."""
        ...

    def state(self) -> dict[str, Any]: ...
    def restore(self, state: dict[str, Any]) -> None: ...


def predicting_states(hidden: Tensor, ids: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden states (N, H) that predict the tokens marked in `at` (B, T), and these tokens (N,), in row-major order.

    Token t is predicted by the state at t - 1, so `at[:, 0]` must be False.
    """
    chosen = at[:, 1:]
    return hidden[:, :-1][chosen], ids[:, 1:][chosen]


def shared_batch(ids: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> TrainBatch:
    """One document a row, each token that rows begin with alike once. The loss and its gradient are those of `padded_batch`."""
    tree = TokenTree(ids, [None] * len(ids))
    summed = np.zeros(len(tree.ids), np.float32)
    for nodes, row in zip(tree.rows, weights, strict=True):
        summed[nodes] += row
    nodes = torch.from_numpy(tree.ids)[None]
    return TrainBatch(
        nodes, torch.from_numpy(summed)[None], torch.ones_like(nodes, dtype=torch.bool), tree=TreeMask(tree)
    )


def pad_rows(rows: Sequence[np.ndarray], fill: float = 0) -> np.ndarray:
    """Rows of shape (T_i, ...) stacked to (B, max T, ...), filled at the right."""
    longest = max(len(row) for row in rows)
    out = np.full((len(rows), longest, *rows[0].shape[1:]), fill, rows[0].dtype)
    for b, row in enumerate(rows):
        out[b, : len(row)] = row
    return out


def padded_batch(ids: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> TrainBatch:
    """One document a row."""
    return TrainBatch(
        ids=torch.from_numpy(pad_rows([row.astype(np.int64) for row in ids])),
        weights=torch.from_numpy(pad_rows([row.astype(np.float32) for row in weights])),
        real=torch.from_numpy(pad_rows([np.ones(len(row), np.bool_) for row in ids])),
    )


def like_lengths(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """The numbers of all rows, the shortest first, those of like length together: up to `most` tokens with padding, or one row."""
    chosen: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if chosen and (len(chosen) + 1) * lengths[number] > most:
            yield chosen
            chosen = []
        chosen.append(number)
    if chosen:
        yield chosen
