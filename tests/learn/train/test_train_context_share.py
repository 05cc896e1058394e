"""Context parallelism in one process: every rank's part is computed in a thread, and what they exchange meets at a barrier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from context_lab import in_ranks
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from etude.learn.model.causal_attention import causal_attention
from etude.learn.model.mask import DocumentMask
from etude.learn.parallel.shared_training import ContextRank
from etude.learn.train.batch import TrainBatch, padded_batch, shared_batch
from etude.learn.train.context_share import ContextBatch, ContextRow, context_part, deal_pieces, rows_of
from etude.learn.train.sources import packed_batch

HEADS, WIDTH = 2, 4


def padded(lengths: list[int]) -> TrainBatch:
    draw = np.random.default_rng(0)
    return padded_batch([draw.integers(0, 50, n) for n in lengths], [weights_of(n) for n in lengths])


def packed(lengths: list[int]) -> TrainBatch:
    """Two rows of the same documents in two orders."""
    rows = [np.repeat(np.arange(len(order)), order) for order in (lengths, lengths[::-1])]
    draw = np.random.default_rng(0)
    return packed_batch([draw.integers(0, 50, len(row)) for row in rows], rows)


def tree(lengths: list[int]) -> TrainBatch:
    """Rows that begin alike, for different numbers of tokens."""
    draw = np.random.default_rng(0)
    begin = draw.integers(0, 50, 9)
    rows = [np.concatenate((begin[: 3 * (n % 4)], draw.integers(50, 60, n))) for n in lengths]
    return shared_batch(rows, [weights_of(len(row)) for row in rows])


def weights_of(length: int) -> np.ndarray:
    weights = np.arange(length, dtype=np.float32) % 3
    weights[:1] = 0
    return weights


KINDS: dict[str, Callable[[list[int]], TrainBatch]] = {"padded": padded, "packed": packed, "tree": tree}


SHAPES = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@given(kind=st.sampled_from(sorted(KINDS)), lengths=SHAPES, ranks=st.integers(2, 4), window=st.sampled_from([0, 5]))
def test_every_token_is_one_ranks_and_sees_what_it_saw(kind: str, lengths: list[int], ranks: int, window: int) -> None:
    batch = KINDS[kind](lengths)
    tokens = batch.ids.numel()
    states = torch.randn(tokens, HEADS, 3 * WIDTH, generator=torch.Generator().manual_seed(0))

    def attention(*rows: Tensor, **more: Any) -> Tensor:
        return causal_attention(*rows, scale=0.5, window=window, **more)

    wanted = batch.mask().attend(*states.split(WIDTH, -1), attention)

    def part(context: ContextRank) -> tuple[ContextBatch, Tensor]:
        share = context_part(batch, context)
        assert isinstance(share, ContextBatch)
        mine = states[share.part.numbers]
        q, *made = mine.split(WIDTH, -1)
        return share, share.part.attend(q, *share.part.context(*made), attention)

    numbers: list[int] = []
    predicted: list[tuple[int, float]] = []
    for share, mixed in in_ranks(ranks, part):
        if share.part.empty:
            assert not share.real.any() and not len(share.targets)
            continue
        numbers += share.part.numbers.tolist()
        assert (mixed - wanted[share.part.numbers]).abs().max() < 1e-5
        places = batch.mask().positions.flatten()[share.part.numbers]
        assert share.mask().positions.flatten().tolist() == places.tolist()
        hidden, targets, weights = share.predictions(share.part.numbers[None, :, None].float())
        predicted += zip(hidden.flatten().tolist(), targets.tolist(), weights.tolist(), strict=True)
    assert sorted(numbers) == batch.real.flatten().nonzero().flatten().tolist()
    whole, targets, weights = batch.predictions(torch.arange(tokens).view(batch.ids.shape)[..., None].float())
    assert sorted(predicted) == sorted(zip(whole.flatten().tolist(), targets.tolist(), weights.tolist(), strict=True))


@given(kind=st.sampled_from(["padded", "packed"]), lengths=SHAPES, ranks=st.integers(2, 4), steps=st.integers(1, 3))
def test_the_tokens_ahead_are_those_of_the_whole_batch(kind: str, lengths: list[int], ranks: int, steps: int) -> None:
    batch = KINDS[kind](lengths)
    whole = batch.mask()
    wanted, weights = whole.ahead(batch.ids, steps).flatten(), whole.ahead(batch.weights, steps).flatten()
    inside = (whole.ahead(whole.positions, steps) == whole.positions + steps).flatten() & whole.ahead(
        batch.real, steps
    ).flatten()

    def part(context: ContextRank) -> tuple[ContextBatch, Tensor, Tensor]:
        share = context_part(batch, context)
        assert isinstance(share, ContextBatch)
        return share, share.part.ahead(share.ids, steps), share.part.ahead(share.weights, steps)

    for share, ids, found in in_ranks(ranks, part):
        if share.part.empty:
            continue
        at = inside[share.part.numbers]
        assert ids[0][at].tolist() == wanted[share.part.numbers][at].tolist()
        assert found[0][at].tolist() == weights[share.part.numbers][at].tolist()


@given(lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=12), ranks=st.integers(1, 8), pair=st.floats(0, 1))
def test_no_rank_costs_much_more_than_the_mean(lengths: list[int], ranks: int, pair: float) -> None:
    rows = [ContextRow(np.arange(length)) for length in lengths]
    context = ContextRank(0, ranks, token=1.0, pair=pair)
    dealt = deal_pieces(rows, context)
    loads = [
        sum(float((1 + pair * np.arange(piece.start + 1, piece.stop + 1)).sum()) for piece in pieces)
        for pieces in dealt
    ]
    dearest = 1 + pair * max(lengths)
    assert max(loads) <= sum(loads) / ranks * 1.25 + 4 * dearest


def test_a_document_alone_is_shared_by_what_its_tokens_see() -> None:
    """8,000 tokens whose attention costs as much as the rest; equal quarters would cost 0.66 to 1.34 of the mean."""
    (row,) = rows_of(padded([8000]))
    dealt = deal_pieces([row], ContextRank(0, 4, token=4000.0, pair=1.0))
    counts = [sum(piece.stop - piece.start for piece in pieces) for pieces in dealt]
    loads = [
        sum(4000 * (p.stop - p.start) + (p.stop * (p.stop + 1) - p.start * (p.start + 1)) / 2 for p in pieces)
        for pieces in dealt
    ]
    assert sum(counts) == 8000 and max(counts) == min(counts) and max(loads) <= 1.001 * sum(loads) / 4


def test_what_needs_whole_rows_is_refused() -> None:
    share = in_ranks(2, lambda context: context_part(tree([5, 6]), context))[0]
    mask = share.mask()
    for ask in (mask.to_rows, mask.to_tokens):
        with pytest.raises(NotImplementedError, match="no whole rows"):
            ask(torch.zeros(3))
    with pytest.raises(NotImplementedError, match="no square matrix"):
        mask.dense()
    with pytest.raises(ValueError, match="draft layers learn from rows"):
        mask.ahead(share.ids, 1)
    assert isinstance(mask, DocumentMask) and share.to(torch.device("cpu")) is share
    assert share.to(torch.device("meta")).mask().positions.device.type == "meta"  # nothing is left behind
