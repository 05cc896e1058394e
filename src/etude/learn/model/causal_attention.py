"""Causal softmax attention over rows of one document each, for learning.

On a CPU, fp32, torch's own kernels leave half the speed: they compute the masked half of the square, or gather strided
heads in the inner loop. Here queries go in blocks that read only the keys before them, each step one batched product over
all heads, and the backward reuses the probabilities. Elsewhere torch's fused kernel is the right one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# Queries per block. Between 32 and 128 the step time is flat (benchmarks/model_speed.py); 64 wastes a tenth at length 512.
QUERY_BLOCK = 64


def _by_head(x: Tensor) -> Tensor:
    """(D, S, heads, width) to contiguous (D * heads, S, width)."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


class _BlockedAttention(torch.autograd.Function):
    """Queries, keys (D, S, heads, width) and values (D, S, heads, value) to (D, S, heads, value)."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        documents, length, heads, _ = q.shape
        q, k, v = _by_head(q), _by_head(k), _by_head(v)
        out = q.new_empty(documents * heads, length, v.shape[-1])
        blocks = []
        for start in range(0, length, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, length)
            future = q.new_full((end - start, end), float("-inf")).triu_(start + 1)
            scores = torch.baddbmm(future, q[:, start:end], k[:, :end].transpose(1, 2), alpha=scale)
            blocks.append(scores.softmax(-1))
            out[:, start:end] = torch.bmm(blocks[-1], v[:, :end])
        ctx.save_for_backward(q, k, v, *blocks)
        ctx.scale = scale
        return out.view(documents, heads, length, -1).transpose(1, 2)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        q, k, v, *blocks = ctx.saved_tensors
        documents, _, heads, _ = grad.shape
        grad = _by_head(grad)
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for number, p in enumerate(blocks):
            start = number * QUERY_BLOCK
            end = start + p.shape[1]
            g = grad[:, start:end]
            dp = torch.bmm(g, v[:, :end].transpose(1, 2))
            ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
            # Not baddbmm_: on a slice it falls back to one small product after another.
            dv[:, :end] += torch.bmm(p.transpose(1, 2), g)
            dk[:, :end] += torch.bmm(ds.transpose(1, 2), q[:, start:end])
            dq[:, start:end] = torch.bmm(ds, k[:, :end])
        dq, dk = dq.mul_(ctx.scale), dk.mul_(ctx.scale)
        return *(x.view(documents, heads, -1, x.shape[-1]).transpose(1, 2) for x in (dq, dk, dv)), None


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """q (D, S, heads, width), k and v (D, S, kv_heads, ...) with heads a multiple of kv_heads -> (D, S, heads, value)."""
    group = q.shape[2] // k.shape[2]
    if q.device.type != "cpu" or q.dtype != torch.float32:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=group > 1)
        return mixed.transpose(1, 2)
    if group > 1:
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, group, -1).flatten(2, 3) for x in (k, v))
    return _BlockedAttention.apply(q, k, v, scale)  # type: ignore[return-value]
