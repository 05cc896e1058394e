"""Documents of a packed batch do not see each other, and cost what they would cost alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from etude.learn.model.causal_attention import QUERY_BLOCK, causal_attention
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.mask import DocumentMask

lengths_of_rows = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=3)


def pack(rows: list[list[int]]) -> torch.Tensor:
    """Documents (B, T): consecutive numbers, the last one of a row stretched to its end."""
    width = max(sum(row) for row in rows)
    documents = torch.empty(len(rows), width, dtype=torch.long)
    for b, row in enumerate(rows):
        numbers = [n for n, length in enumerate(row) for _ in range(length)]
        documents[b] = torch.tensor(numbers + [len(row)] * (width - len(numbers)))
    return documents


@given(lengths_of_rows)
def test_dense_is_causal_within_documents_only(rows: list[list[int]]) -> None:
    documents = pack(rows)
    mask = DocumentMask.packed(documents)
    dense = mask.dense()
    for b in range(documents.shape[0]):
        for t in range(documents.shape[1]):
            for s in range(documents.shape[1]):
                assert bool(dense[b, t, s]) == (s <= t and bool(documents[b, s] == documents[b, t]))


@given(lengths_of_rows)
def test_rows_hold_every_token_at_its_position_and_come_back(rows: list[list[int]]) -> None:
    mask = DocumentMask.packed(pack(rows))
    tokens = torch.arange(mask.batch * mask.length).float().unsqueeze(1)
    packed = mask.to_rows(tokens)
    assert torch.equal(mask.to_tokens(packed), tokens)
    run, position = mask._run, mask.positions.flatten()
    assert torch.equal(packed[run, position], tokens)


def test_equal_numbers_apart_are_two_documents() -> None:
    mask = DocumentMask.packed(torch.tensor([[0, 0, 1, 0]]))
    assert mask.positions.tolist() == [[0, 1, 0, 0]]
    assert mask.dense()[0, 3].tolist() == [False, False, False, True]


def test_attention_over_rows_equals_dense_masked_attention_with_gradients() -> None:
    generator = torch.Generator().manual_seed(0)
    length = 2 * QUERY_BLOCK + 21  # three query blocks, the last one short
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor([length - 12, 1, 11])).unsqueeze(0)
    mask = DocumentMask.packed(documents)

    def draw(heads: int, width: int) -> torch.Tensor:
        return torch.randn(length, heads, width, generator=generator, requires_grad=True)

    q, k, v = draw(4, 12), draw(2, 12), draw(2, 7)
    rows = causal_attention(mask.to_rows(q), mask.to_rows(k), mask.to_rows(v), scale=0.3)
    ours = mask.to_tokens(rows)
    q4, k4, v4 = (x.transpose(0, 1).unsqueeze(0) for x in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)))
    theirs = F.scaled_dot_product_attention(q4, k4, v4, mask.dense().unsqueeze(1), scale=0.3)[0].transpose(0, 1)
    assert (ours - theirs).abs().max() <= 2e-6
    upstream = torch.randn(ours.shape, generator=generator)
    for a, b in zip(
        torch.autograd.grad(ours, (q, k, v), upstream), torch.autograd.grad(theirs, (q, k, v), upstream), strict=True
    ):
        assert (a - b).abs().max() <= 1e-5


def test_packed_documents_equal_separate_ones_in_logits_and_gradients(model: CausalLM, ids: torch.Tensor) -> None:
    lengths = [40, 7, 23]
    packed = torch.cat([ids[b, :n] for b, n in enumerate(lengths)]).unsqueeze(0)
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths)).unsqueeze(0)
    together = model(packed, DocumentMask.packed(documents)).logits[0]
    apart = torch.cat([model(ids[b : b + 1, :n]).logits[0] for b, n in enumerate(lengths)])
    assert (together - apart).abs().max() <= 2e-6
    assert_same_gradients(model, together, apart)


def test_padded_rows_equal_separate_documents_in_logits_and_gradients(model: CausalLM, ids: torch.Tensor) -> None:
    lengths = torch.tensor([40, 7, 23])
    real = torch.arange(40) < lengths.unsqueeze(1)
    padded = model(ids, DocumentMask.rows(3, 40), logits_at=real).logits
    apart = torch.cat([model(ids[b : b + 1, :n]).logits[0] for b, n in enumerate(lengths.tolist())])
    assert (padded - apart).abs().max() <= 2e-6
    assert_same_gradients(model, padded, apart)


def assert_same_gradients(model: CausalLM, a: torch.Tensor, b: torch.Tensor) -> None:
    parameters = list(model.parameters())
    first = torch.autograd.grad(a.log_softmax(-1)[:, 3].mean(), parameters)
    second = torch.autograd.grad(b.log_softmax(-1)[:, 3].mean(), parameters)
    for x, y in zip(first, second, strict=True):
        assert (x - y).abs().max() <= 1e-6
    assert any(bool(x.abs().max() > 1e-4) for x in first)


def test_logits_at_chosen_positions_are_those_of_all(model: CausalLM, ids: torch.Tensor) -> None:
    at = torch.zeros_like(ids, dtype=torch.bool)
    at[0, 3] = at[2, 39] = at[2, 0] = True
    everything = model(ids)
    assert (model(ids, logits_at=at).logits - everything.logits[at]).abs().max() <= 1e-6
    assert (model.head(everything.hidden) - everything.logits).abs().max() <= 1e-6
