"""Row gathers whose backward is a gather too.

Autograd's own backward of a gather adds row by row into zeros, which on a CPU costs several times the forward. Where the
inverse index is known, reading through it gives the same gradient. Without gradients they are plain gathers: a custom
function costs more to call than a small gather to run, and decoding is made of small gathers.
"""

from __future__ import annotations

import torch
from torch import Tensor


class _Reindex(torch.autograd.Function):
    """y[i] = x[index[i]], where every row of x is read for its meaning exactly once: at inverse."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None


class _Spread(torch.autograd.Function):
    """y[i] = x[index[i] // copies]: each row of x is read `copies` times, copy c of row n at inverse[n * copies + c]."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.copies = copies
        return x.index_select(0, index // copies)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        (inverse,) = ctx.saved_tensors
        copies = grad.index_select(0, inverse).view(-1, ctx.copies, grad.shape[-1]).unbind(1)
        return sum(copies[1:], start=copies[0]), None, None, None  # a reduction over so short an axis is 3x slower


class _Combine(torch.autograd.Function):
    """y[n] = sum over c of weights[n, c] * x[inverse[n * copies + c]]: the way back from `_Spread`."""

    @staticmethod
    def forward(ctx, x: Tensor, weights: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
        parts = x.index_select(0, inverse).view(*weights.shape, x.shape[-1])  # (N, copies, H)
        ctx.save_for_backward(parts, weights, index)
        return _weighted_sum(parts, weights)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        parts, weights, index = ctx.saved_tensors
        dparts = (grad.unsqueeze(1) * weights.unsqueeze(-1)).flatten(0, 1)  # (N * copies, H)
        return dparts.index_select(0, index), (parts * grad.unsqueeze(1)).sum(-1), None, None


def _weighted_sum(parts: Tensor, weights: Tensor) -> Tensor:
    """(N, copies, H) by (N, copies) to (N, H); one pass per copy beats a batch of tiny products and a short reduction."""
    first, *rest = parts.unbind(1)
    total = first * weights[:, :1]
    for number, part in enumerate(rest, 1):
        total.addcmul_(part, weights[:, number : number + 1])
    return total


class _Pick(torch.autograd.Function):
    """y[i] = x[index[i]] with no row read twice; rows never read get no gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = x.shape[0]
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, *grad.shape[1:]).index_copy_(0, index, grad), None


def reindex(x: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
    """x (N, ...) -> (M, ...) rows x[index]. Row n counts at inverse[n]; gradients at other rows of the result are dropped."""
    if not x.requires_grad:
        return x.index_select(0, index)
    return _Reindex.apply(x, index, inverse)  # type: ignore[return-value]


def spread(x: Tensor, index: Tensor, inverse: Tensor, copies: int) -> Tensor:
    """x (N, H) -> (N * copies, H) rows x[index // copies]; `inverse` is the inverse permutation of `index`."""
    if not x.requires_grad:
        return x.index_select(0, index // copies)
    return _Spread.apply(x, index, inverse, copies)  # type: ignore[return-value]


def combine(x: Tensor, weights: Tensor, index: Tensor, inverse: Tensor) -> Tensor:
    """x (N * copies, H), laid out by `spread` with the same index and inverse, weighted (N, copies) and summed to (N, H)."""
    if not (x.requires_grad or weights.requires_grad):
        return _weighted_sum(x.index_select(0, inverse).view(*weights.shape, x.shape[-1]), weights)
    return _Combine.apply(x, weights, index, inverse)  # type: ignore[return-value]


def pick(x: Tensor, index: Tensor) -> Tensor:
    """x (M, ...) -> (N, ...) rows x[index], `index` without repeats."""
    if not x.requires_grad:
        return x.index_select(0, index)
    return _Pick.apply(x, index)  # type: ignore[return-value]
