"""Which token may look at which: causal, and never across documents (the model's half of packing).

Token-wise layers see N flat tokens; attention sees rows, one document each, padded right. `to_rows` and `to_tokens` go
between the two, so a packed batch costs the attention of its documents, not that of its square, and needs no dense mask:
with padding on the right, causality alone hides it. `dense()` is the same relation as a matrix, for kernels that want one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from etude.learn.model.gather import pick, reindex

# Queries (D, Q, ...), keys and values (D, S, ...) to (D, Q, ...). The queries are those of the last Q of S positions. With `beginning`, keys and
# values (P, ...) that precede those of every row.
Attention = Callable[..., Tensor]


class DocumentMask:
    """Causal attention within documents of a (B, T) batch.

    `documents` (B, T) names each token's document; a document is a run of equal numbers within a row. None means that each
    row is one document, padding (if any) at its right end. Padding inside `documents` is a document like any other.
    """

    def __init__(self, batch: int, length: int, documents: Tensor | None = None) -> None:
        self.batch, self.length, self.documents = batch, length, documents
        if documents is not None and tuple(documents.shape) != (batch, length):
            raise ValueError(f"documents have shape {tuple(documents.shape)}, the batch is {(batch, length)}")

    @classmethod
    def rows(cls, batch: int, length: int) -> DocumentMask:
        """Every row is one document, padded right."""
        return cls(batch, length)

    @classmethod
    def packed(cls, documents: Tensor) -> DocumentMask:
        """Documents (B, T) packed one after another in each row."""
        return cls(documents.shape[0], documents.shape[1], documents)

    def to(self, device: torch.device) -> DocumentMask:
        """The same for tokens that are there."""
        return DocumentMask(self.batch, self.length, None if self.documents is None else self.documents.to(device))

    @cached_property
    def _starts(self) -> Tensor:
        """(B*T,) True where a document begins."""
        assert self.documents is not None
        starts = torch.ones_like(self.documents, dtype=torch.bool)
        starts[:, 1:] = self.documents[:, 1:] != self.documents[:, :-1]
        return starts.flatten()

    @cached_property
    def _run(self) -> Tensor:
        """(B*T,) number of the document, counted over the batch."""
        return self._starts.cumsum(0) - 1

    @cached_property
    def positions(self) -> Tensor:
        """(B, T) place of each token in its document; a CPU tensor if no documents were given."""
        if self.documents is None:
            return torch.arange(self.length).expand(self.batch, -1)
        index = torch.arange(self.batch * self.length, device=self.documents.device)
        first = index[self._starts]  # (D,)
        return (index - first[self._run]).view(self.batch, self.length)

    @cached_property
    def _layout(self) -> tuple[Tensor, Tensor, int, int]:
        """(slot of each token, token of each slot, documents D, longest S); empty slots repeat token 0."""
        positions = self.positions.flatten()
        width = int(positions.max()) + 1
        count = int(self._run[-1]) + 1
        slot = self._run * width + positions  # (N,)
        token = torch.zeros(count * width, dtype=slot.dtype, device=slot.device)
        token[slot] = torch.arange(slot.numel(), device=slot.device)
        return slot, token, count, width

    def to_rows(self, x: Tensor) -> Tensor:
        """Tokens (N, ...) to attention rows (D, S, ...). Slots past a document's end hold no meaning."""
        if self.documents is None:
            return x.view(self.batch, self.length, *x.shape[1:])
        slot, token, count, width = self._layout
        return reindex(x, token, slot).view(count, width, *x.shape[1:])

    def to_tokens(self, rows: Tensor) -> Tensor:
        """Attention rows (D, S, ...) back to tokens (N, ...)."""
        flat = rows.reshape(-1, *rows.shape[2:])
        if self.documents is None:
            return flat
        return pick(flat, self._layout[0])

    def context(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """What keys and values are made of, (N, ...) tensors of these tokens: those of all tokens that they see. Here these are all there are."""
        return parts

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> Tensor:
        """Queries, keys and values of tokens (N, heads, width) to what each token mixes (N, heads, width), by an attention over rows. Keys and
        values are of what `context` gave."""
        return self.to_tokens(attention(self.to_rows(q), self.to_rows(k), self.to_rows(v)))

    def ahead(self, x: Tensor, steps: int) -> Tensor:
        """x (B, T, ...) moved left: place i holds what stood at i + steps. The last `steps` places repeat the last one, and are of no use: causality
        keeps them from all others, and a caller that predicts from them must leave them out."""
        places = torch.arange(x.shape[1], device=x.device).add_(steps).clamp_(max=x.shape[1] - 1)
        return x.index_select(1, places)

    def dense(self) -> Tensor:
        """(B, T, T) bool, True where query t may see key s."""
        causal = torch.ones(self.length, self.length, dtype=torch.bool).tril()
        if self.documents is None:
            return causal.expand(self.batch, -1, -1)
        run = self._run.view(self.batch, self.length)
        return causal.to(run.device) & (run.unsqueeze(2) == run.unsqueeze(1))
