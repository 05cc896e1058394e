"""Context parallelism: ranks that share the tokens of the same rows, each token on one of them, so that a row may be longer than one rank's memory.

Token-wise layers see a rank's own tokens. Attention sees its queries, and the keys and values of all tokens, which are gathered from the ranks of the
group (as latents where a layer has them); any causal mask works, packed documents and trees of shared beginnings alike. Tokens are dealt by what
they cost, attention included, and not by number: a token costs its way through the weights and every token that it sees. What a token predicts is
looked up in the whole batch, before it is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from etude.learn.model.mask import Attention, DocumentMask
from etude.learn.parallel.shared_training import ContextRank, SharedTraining
from etude.learn.train.balance import FINEST, deal
from etude.learn.train.batch import TrainBatch, pad_rows
from etude.learn.train.rollout_batch import RolloutBatch
from etude.learn.train.shared_prefix import TokenTree, TreeMask


@dataclass(frozen=True)
class ContextRow:
    """A sequence of tokens, each of which sees those before it: `tokens` (T,) are their numbers in the batch. Those before `own` are another row's
    to compute, as what rows of a tree begin with."""

    tokens: np.ndarray
    own: int = 0


@dataclass(frozen=True)
class ContextPiece:
    """Neighbouring tokens of a row that are computed by one rank: places `start` to `stop`."""

    row: int
    start: int
    stop: int


def share_of(batch: TrainBatch, shared: SharedTraining) -> TrainBatch:
    """What this rank computes of a batch: some of its rows, or with context parallelism some tokens of some of its rows."""
    if shared.ranks == 1:
        return batch
    context = shared.context
    groups = shared.ranks // context.ranks
    group = shared.rank // context.ranks
    rows = batch if groups == 1 else batch.share(range(group, batch.rows, groups))
    return rows if context.ranks == 1 else context_part(rows, context)


def context_part(batch: TrainBatch, context: ContextRank) -> TrainBatch:
    """The part of a rank among those that share a batch's tokens. The losses of all parts add up to that of the batch, and so do their gradients and
    real tokens. A rank without tokens gets one that counts nothing, for it has to take part in every exchange."""
    rows = rows_of(batch)
    dealt = deal_pieces(rows, context)
    mask = ContextMask(rows, dealt, context, _ends(batch))
    ids, weights, real = (x.flatten()[mask.numbers] for x in (batch.ids, batch.weights, batch.real))
    if mask.empty:
        weights, real = torch.zeros_like(weights), torch.zeros_like(real)
    whole = batch.weights.sum() if batch.whole_weight is None else batch.whole_weight
    found = _predictions(batch, mask)
    return ContextBatch(ids[None], weights[None], real[None], None, None, whole, batch.checksum, part=mask, **found)


def rows_of(batch: TrainBatch) -> list[ContextRow]:
    """The rows of tokens that attention sees in a batch, without padding."""
    if batch.tree is not None:
        return rows_of_tree(batch.tree.tree)
    numbers = np.arange(batch.ids.numel()).reshape(batch.ids.shape)
    real = batch.real.numpy()
    if batch.documents is None:
        return [ContextRow(row[kept]) for row, kept in zip(numbers, real, strict=True) if kept.any()]
    found: list[ContextRow] = []
    for row, kept, documents in zip(numbers, real, batch.documents.numpy(), strict=True):
        borders = np.flatnonzero(np.diff(documents)) + 1
        parts = zip(np.split(row, borders), np.split(kept, borders), strict=True)
        found += [ContextRow(part[those]) for part, those in parts if those.any()]
    return found


def rows_of_tree(tree: TokenTree) -> list[ContextRow]:
    """Of each row those nodes are its own that no earlier row has."""
    rows, seen = [], 0
    for nodes in tree.rows:  # nodes are numbered as they are met: those of earlier rows come first
        rows.append(ContextRow(nodes, int((nodes < seen).sum())))
        seen = max(seen, int(nodes[-1]) + 1)
    return rows


def rollout_part(batch: RolloutBatch, context: ContextRank) -> RolloutBatch:
    """The part of a rank among those that share a tree of rollouts, with the sampled tokens whose predecessors it has."""
    assert isinstance(batch.mask, TreeMask)
    rows = rows_of_tree(batch.mask.tree)
    mask = ContextMask(rows, deal_pieces(rows, context), context)
    place = torch.full((batch.ids.shape[1],), -1)
    if not mask.empty:
        place[mask.numbers] = torch.arange(len(mask.numbers))
    here = (place[batch.parents] >= 0).nonzero().squeeze(1)
    idle = batch.idle or mask.empty
    sampled = {name: getattr(batch, name)[here] for name in ("targets", "owner", "sampler_logprobs")}
    return RolloutBatch(
        ids=batch.ids[:, mask.numbers],
        mask=mask,
        routes=None if batch.routes is None or idle else batch.routes[:, mask.numbers],
        parents=place[batch.parents[here]],
        idle=idle,
        places=here,
        shared=len(batch.targets),
        **sampled,
    )


def deal_pieces(rows: Sequence[ContextRow], context: ContextRank) -> list[list[ContextPiece]]:
    """The pieces of each rank. What is dealt are shares of rows, the dearest first, each to the rank with the least so far (`balance.deal`).

    A row that costs more than FINEST of what a rank carries is cut into shares, up to one for each rank. A share is two pieces, one as far from the
    beginning as the other is from the end: so all shares of a row have as many tokens and see as many. Neighbouring pieces on one rank are joined.
    """
    costs = [context.token + context.pair * np.arange(row.own + 1, len(row.tokens) + 1) for row in rows]
    spent = [float(cost.sum()) for cost in costs]
    most = FINEST * sum(spent) / context.ranks
    shares: list[list[ContextPiece]] = []
    for number, row in enumerate(rows):
        wanted = int(np.ceil(spent[number] / most)) if most else 1
        shares += _shares(number, row, min(wanted, context.ranks, (len(row.tokens) - row.own) // 2))
    loads = [
        sum(float(costs[p.row][p.start - rows[p.row].own : p.stop - rows[p.row].own].sum()) for p in s) for s in shares
    ]
    dealt = deal(loads, context.ranks)
    return [
        _joined(sorted((p for n in numbers for p in shares[n]), key=lambda p: (p.row, p.start))) for numbers in dealt
    ]


def _shares(number: int, row: ContextRow, count: int) -> list[list[ContextPiece]]:
    """A row's own tokens in `count` shares, at least one; none of a row that has no own."""
    length = len(row.tokens)
    if count <= 1:
        return [[ContextPiece(number, row.own, length)]] if row.own < length else []
    edges = np.linspace(row.own, length, 2 * count + 1).round().astype(int).tolist()
    pieces = [ContextPiece(number, start, stop) for start, stop in zip(edges[:-1], edges[1:], strict=True)]
    return [[pieces[n], pieces[-1 - n]] for n in range(count)]


def _joined(pieces: Sequence[ContextPiece]) -> list[ContextPiece]:
    found: list[ContextPiece] = []
    for piece in pieces:
        if found and found[-1].row == piece.row and found[-1].stop == piece.start:
            piece = ContextPiece(piece.row, found.pop().start, piece.stop)
        found.append(piece)
    return found


@dataclass(frozen=True)
class _Beginnings:
    """Pieces that begin their rows and are this rank's only ones of them, padded right: `queries` (D, S) places among its tokens, `keys` (D, S) the
    same among the gathered ones; `filled` (M,) the slots, row-major, that hold a token."""

    queries: Tensor
    keys: Tensor
    filled: Tensor


@dataclass(frozen=True)
class _RowPieces:
    """A row of which this rank has other pieces: `keys` (S,) the gathered places of its tokens up to the last that is needed; of each piece the
    place of its first token among the rank's, and `start` and `stop` in the row."""

    keys: Tensor
    pieces: tuple[tuple[int, int, int], ...]


class ContextMask(DocumentMask):
    """Who sees whom, for the n tokens of one rank of a group: one batch row of them. `numbers` (n,) are their places in the batch. A rank that was
    dealt nothing is `empty` and has token 0, alone in its row."""

    def __init__(
        self,
        rows: Sequence[ContextRow],
        dealt: Sequence[Sequence[ContextPiece]],
        context: ContextRank,
        ends: np.ndarray | None = None,
    ) -> None:
        """`ends` (N,): by number the last token of its row in the batch, for `ahead`."""
        counts = [sum(piece.stop - piece.start for piece in pieces) for pieces in dealt]
        super().__init__(1, max(1, counts[context.rank]))
        self._context, self._own = context, dealt[context.rank]
        self._size = max(1, *counts)  # what each rank sends
        self.empty = not self._own
        self._place, self._ends = _gathered_places(rows, dealt, self._size), ends
        self._rows = [self._place[row.tokens] for row in rows]
        numbers = [rows[piece.row].tokens[piece.start : piece.stop] for piece in self._own]
        places = [np.arange(piece.start, piece.stop) for piece in self._own]
        self.numbers = torch.from_numpy(np.concatenate(numbers or [np.zeros(1, np.int64)]))
        self._positions = torch.from_numpy(np.concatenate(places or [np.zeros(1, np.int64)]))[None]
        self._together: _Beginnings | None = None
        self._apart: list[_RowPieces] = []
        self._back = self._lay_out()

    def to(self, device: torch.device) -> ContextMask:
        """The same for tokens that are there; `numbers` stays on the CPU, where batches are cut."""
        moved = copy(self)
        moved._positions, moved._back = self._positions.to(device), self._back.to(device)
        if self._together is not None:
            moved._together = _Beginnings(*(x.to(device) for x in vars(self._together).values()))
        moved._apart = [replace(row, keys=row.keys.to(device)) for row in self._apart]
        return moved

    @property
    def positions(self) -> Tensor:  # type: ignore[override]
        """(1, n) place of each token in its row."""
        return self._positions

    def to_rows(self, x: Tensor) -> Tensor:
        raise NotImplementedError("one rank's tokens are no whole rows: use `attend`")

    def to_tokens(self, rows: Tensor) -> Tensor:
        raise NotImplementedError("one rank's tokens are no whole rows: use `attend`")

    def dense(self) -> Tensor:
        raise NotImplementedError("one rank's tokens are no whole batch: there is no square matrix")

    def context(self, *parts: Tensor) -> tuple[Tensor, ...]:
        """Of tensors (n, ...) of this rank's tokens those of all ranks' (N, ...), as `attend` wants them; one exchange."""
        flat = [part.flatten(1) for part in parts]
        rows = torch.cat(flat, -1) if len(flat) > 1 else flat[0]
        if missing := self._size - len(rows):
            rows = torch.cat((rows, rows.new_zeros(missing, rows.shape[1])))
        gathered = self._context.gather(rows).split([part.shape[1] for part in flat], -1)
        return tuple(whole.unflatten(-1, part.shape[1:]) for whole, part in zip(gathered, parts, strict=True))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attention: Attention) -> Tensor:
        """Queries of this rank's tokens (n, heads, width), keys and values of all of them (`context`) to what each of its tokens mixes (n, heads,
        width)."""
        mixed = []
        if self._together is not None:
            at = self._together
            rows = attention(_picked(q, at.queries), _picked(k, at.keys), _picked(v, at.keys))
            mixed.append(rows.flatten(0, 1).index_select(0, at.filled))
        for row in self._apart:
            keys, values = _picked(k, row.keys[None]), _picked(v, row.keys[None])  # (1, S, heads, width)
            for place, start, stop in row.pieces:
                first = {"beginning": (keys[0, :start], values[0, :start])} if start else {}
                queries = q[None, place : place + stop - start]
                mixed.append(attention(queries, keys[:, start:stop], values[:, start:stop], **first)[0])
        return torch.cat(mixed).index_select(0, self._back)

    def ahead(self, x: Tensor, steps: int) -> Tensor:
        """As for the whole batch, x (1, n, ...), whichever rank has the token; behind the last token of a batch's row that token. One exchange."""
        if self._ends is None:
            raise ValueError("tokens of a tree have several that follow: draft layers learn from rows")
        (whole,) = self.context(x[0].unsqueeze(-1))
        numbers = self.numbers.numpy()
        places = torch.from_numpy(self._place[np.minimum(numbers + steps, self._ends[numbers])]).to(whole.device)
        return whole.index_select(0, places).squeeze(-1)[None]

    def _lay_out(self) -> Tensor:
        """Fills `_together` and `_apart`. (n,) where in what they give each token is."""
        if self.empty:
            here = torch.zeros(1, dtype=torch.int64)
            self._together = _Beginnings(here[None], here[None] + self._context.rank * self._size, here)
            return here
        places = np.cumsum([0, *(piece.stop - piece.start for piece in self._own)])
        of_row: dict[int, list[int]] = {}
        for number, piece in enumerate(self._own):
            of_row.setdefault(piece.row, []).append(number)
        alone = [numbers[0] for numbers in of_row.values() if len(numbers) == 1 and not self._own[numbers[0]].start]
        order = [*alone]
        if alone:
            queries = [np.arange(places[number], places[number + 1]) for number in alone]
            keys = [self._rows[self._own[number].row][: self._own[number].stop] for number in alone]
            width = max(map(len, queries))
            filled = np.concatenate([row * width + np.arange(len(query)) for row, query in enumerate(queries)])
            self._together = _Beginnings(*(torch.from_numpy(x) for x in (pad_rows(queries), pad_rows(keys), filled)))
        for row, numbers in of_row.items():
            if numbers[0] not in alone:
                pieces = tuple((int(places[n]), self._own[n].start, self._own[n].stop) for n in numbers)
                self._apart.append(_RowPieces(torch.from_numpy(self._rows[row][: pieces[-1][2]]), pieces))
                order += numbers
        given = np.concatenate([np.arange(places[number], places[number + 1]) for number in order])
        return torch.from_numpy(np.argsort(given))


@dataclass(frozen=True)
class ContextBatch(TrainBatch):
    """A rank's part of a batch whose tokens several ranks share: one row of its n tokens."""

    part: ContextMask = field(kw_only=True)
    predictors: Tensor = field(kw_only=True)  # (P,) places of the tokens that predict one with a weight
    targets: Tensor = field(kw_only=True)  # (P,) ids of the predicted
    target_weights: Tensor = field(kw_only=True)  # (P,)

    def to(self, device: torch.device) -> TrainBatch:
        if self.ids.device == device:
            return self
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, part=self.part.to(device), **tensors)

    def mask(self) -> DocumentMask:
        return self.part

    def predictions(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return hidden[0].index_select(0, self.predictors), self.targets, self.target_weights


def _ends(batch: TrainBatch) -> np.ndarray | None:
    """(N,) the number of the last token that is no padding in each token's row; None for a tree."""
    if batch.tree is not None:
        return None
    count, length = batch.ids.shape
    last = np.arange(count) * length + np.maximum(batch.real.numpy().sum(1), 1) - 1
    return np.repeat(last, length)


def _predictions(batch: TrainBatch, mask: ContextMask) -> dict[str, Tensor]:
    """Which of this rank's tokens predict which tokens of the whole batch, and their weights there."""
    weights = batch.weights.flatten()
    wanted = (weights > 0).nonzero().squeeze(1)  # (P,) numbers in the batch
    before = wanted - 1 if batch.tree is None else batch.tree.parents[wanted]
    place = torch.full((batch.ids.numel(),), -1)
    if not mask.empty:
        place[mask.numbers] = torch.arange(len(mask.numbers))
    here = place[before] >= 0
    ids = batch.ids.flatten()[wanted[here]]
    return {"predictors": place[before][here], "targets": ids, "target_weights": weights[wanted[here]]}


def _gathered_places(rows: Sequence[ContextRow], dealt: Sequence[Sequence[ContextPiece]], size: int) -> np.ndarray:
    """By number in the batch the place of a token among those that `size` rows of each rank make."""
    places = np.zeros(1 + max((int(row.tokens.max()) for row in rows), default=0), np.int64)
    for rank, pieces in enumerate(dealt):
        place = rank * size
        for piece in pieces:
            count = piece.stop - piece.start
            places[rows[piece.row].tokens[piece.start : piece.stop]] = np.arange(place, place + count)
            place += count
    return places


def _picked(x: Tensor, at: Tensor) -> Tensor:
    """x (N, ...) at places (D, S): (D, S, ...)."""
    return x.flatten(1).index_select(0, at.flatten()).view(*at.shape, *x.shape[1:])
