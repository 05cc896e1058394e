"""Attention of rows that begin alike equals attention of each row with a copy of the beginning."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from etude.learn.model.causal_attention import causal_attention
from etude.learn.model.experts import swiglu

SCALE = 0.3


def _whole(q: Tensor, k: Tensor, v: Tensor, first_k: Tensor, first_v: Tensor) -> Tensor:
    """By the definition, in fp64."""
    q, k, v, first_k, first_v = (x.double() for x in (q, k, v, first_k, first_v))
    rows, queries, heads, _ = q.shape
    k, v = (torch.cat((a.expand(rows, *a.shape), b), 1) for a, b in ((first_k, k), (first_v, v)))
    k, v = (x.repeat_interleave(heads // x.shape[2], 2) for x in (k, v))
    scores = torch.einsum("rqhw,rkhw->rhqk", q, k) * SCALE
    seen = torch.arange(k.shape[1]) <= torch.arange(queries)[:, None] + len(first_k)
    return torch.einsum("rhqk,rkhw->rqhw", scores.masked_fill(~seen, float("-inf")).softmax(-1), v)


def _results(function, tensors: list[Tensor], grad: Tensor) -> list[Tensor]:
    """The result and the gradient of each tensor."""
    own = [x.clone().requires_grad_() for x in tensors]
    out = function(*own)
    out.backward(grad.to(out.dtype))
    return [out.detach(), *(x.grad for x in own if x.grad is not None)]


def _in_place(q: Tensor, k: Tensor, v: Tensor, first_k: Tensor, first_v: Tensor) -> Tensor:
    return causal_attention(q, k, v, SCALE, beginning=(first_k, first_v))


def _largest_difference(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max() / b.double().abs().max())


@given(
    rows=st.integers(1, 4), queries=st.integers(1, 70), beginning=st.integers(1, 90), kv_heads=st.integers(1, 3),
    group=st.integers(1, 3), width=st.sampled_from((8, 16)), values=st.sampled_from((0, 4)), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_results_and_gradients_are_those_of_copied_beginnings(
    rows: int, queries: int, beginning: int, kv_heads: int, group: int, width: int, values: int, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    wide = values + width  # latent attention has values of another width
    shapes = (
        (rows, queries, kv_heads * group, width),
        (rows, queries, kv_heads, width),
        (rows, queries, kv_heads, wide),
    )
    firsts = ((beginning, kv_heads, width), (beginning, kv_heads, wide))
    tensors = [torch.randn(shape, generator=draw) for shape in (*shapes, *firsts)]
    grad = torch.randn(rows, queries, kv_heads * group, wide, generator=draw)
    found = _results(_in_place, tensors, grad)
    expected = _results(_whole, tensors, grad)
    assert len(found) == 6
    for a, b in zip(found, expected, strict=True):
        assert float((a - b).abs().max()) <= 2e-5 * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 2e-5), (torch.bfloat16, 2e-2)])
def test_every_number_type_is_read_in_place(dtype: torch.dtype, bound: float) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = ((3, 40, 9, 64), (3, 40, 3, 64), (3, 40, 3, 64), (100, 3, 64), (100, 3, 64))
    tensors = [torch.randn(shape, generator=draw).to(dtype) for shape in shapes]
    grad = torch.randn(3, 40, 9, 64, generator=draw).to(dtype)
    pairs = zip(_results(_in_place, tensors, grad), _results(_whole, tensors, grad), strict=True)
    assert max(_largest_difference(a, b) for a, b in pairs) <= bound


@pytest.mark.parametrize(("window", "sinks"), [(16, False), (0, True), (16, True)])
def test_windows_and_sinks_see_the_beginning_too(window: int, sinks: bool) -> None:
    draw = torch.Generator().manual_seed(1)
    q, k, v, first_k, first_v = (
        torch.randn(shape, generator=draw)
        for shape in ((2, 20, 4, 8), (2, 20, 2, 8), (2, 20, 2, 8), (30, 2, 8), (30, 2, 8))
    )
    scores = torch.randn(4, generator=draw) if sinks else None
    found = causal_attention(q, k, v, SCALE, window, scores, (first_k, first_v))
    copied = (torch.cat((a.expand(2, *a.shape), b), 1) for a, b in ((first_k, k), (first_v, v)))
    assert torch.equal(found, causal_attention(q, *copied, SCALE, window, scores))


def test_gradients_of_swiglu_are_those_of_autograd_bit_for_bit() -> None:
    draw = torch.Generator().manual_seed(2)
    x, grad = torch.randn(33, 64, generator=draw), torch.randn(33, 32, generator=draw)

    def plain(gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up

    for a, b in zip(_results(swiglu, [x], grad), _results(plain, [x], grad), strict=True):
        assert torch.equal(a, b)
