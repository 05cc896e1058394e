"""Causal softmax attention over rows of one document each, for learning.

On an AMD CPU with AVX-512, fp32, torch's own kernels leave half the speed: they compute the masked half of the square, or gather strided
heads in the inner loop. Here queries go in blocks that read only the keys before them, each step one batched product over
all heads, and the backward reuses the probabilities. Elsewhere torch's fused kernel is the right one: on a core with AVX2 alone it takes 0.6 to 0.9
of the time of the blocks (rows of 200 to 3,000 tokens, four heads of 32 and nine of 64, forward and backward), on one of an Intel Xeon with AVX-512
0.54 to 0.67 for rows of 1,000 and 2,000 tokens, and 1.05 to 1.2 for 256 and 300.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from etude.learn.model.device import OWN_KERNELS
from etude.learn.model.shared_attention import reads_in_place, shared_attention

# Queries per block. Between 32 and 128 the step time is flat (benchmarks/model_speed.py); 64 wastes a tenth at length 512.
QUERY_BLOCK = 64
# Probabilities of one call that are kept for the backward pass; more of them are computed again there. Eight sessions of 2,000 tokens with nine
# heads have 580 MB in each layer.
KEPT_BYTES = 128 << 20
BLOCKS_ARE_FASTER = OWN_KERNELS


def _by_head(x: Tensor) -> Tensor:
    """(D, S, heads, width) to contiguous (D * heads, S, width)."""
    return x.transpose(1, 2).reshape(-1, x.shape[1], x.shape[3])


class _BlockedAttention(torch.autograd.Function):
    """Queries (D, Q, heads, width), keys (D, S, heads, width) and values (D, S, heads, value) to (D, Q, heads, value). The queries are those of
    the last Q positions.

    `window` is the number of positions that a query sees, its own among them; 0: all before it. `sinks` (heads,) or None takes
    part in each head's softmax and adds nothing to the sum.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int, sinks: Tensor | None):  # type: ignore[override]
        documents, queries, heads, _ = q.shape
        spans = list(_query_blocks(queries, k.shape[1], window))
        q, k, v = _by_head(q), _by_head(k), _by_head(v)
        out = q.new_empty(documents * heads, queries, v.shape[-1])
        column = None if sinks is None else sinks.to(q.dtype).repeat(documents).view(-1, 1, 1)  # (D * heads, 1, 1)
        area = sum((end - first) * (end - start) for first, start, end in spans)
        kept: list[tuple[Tensor, Tensor | None]] = []
        keep = area * documents * heads * q.element_size() <= KEPT_BYTES
        skipped = k.shape[1] - queries
        for span in spans:
            first, start, end = span
            scores, sunk = _probabilities(q[:, start - skipped : end - skipped], k, span, scale, window, column)
            out[:, start - skipped : end - skipped] = torch.bmm(scores, v[:, first:end])
            if keep:
                kept.append((scores, sunk))
        ctx.save_for_backward(q, k, v, column, *(part for pair in kept for part in pair))
        ctx.scale, ctx.window, ctx.heads = scale, window, heads
        return out.view(documents, heads, queries, -1).transpose(1, 2)

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        q, k, v, column, *kept = ctx.saved_tensors
        documents, queries, heads, _ = grad.shape
        grad = _by_head(grad)
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        dsinks = None if column is None else q.new_zeros(documents * heads)
        skipped = k.shape[1] - queries
        for number, span in enumerate(_query_blocks(queries, k.shape[1], ctx.window)):
            first, start, end = span
            rows = slice(start - skipped, end - skipped)
            pair = kept[2 * number : 2 * number + 2]
            p, sunk = pair or _probabilities(q[:, rows], k, span, ctx.scale, ctx.window, column)
            g = grad[:, rows]
            dp = torch.bmm(g, v[:, first:end].transpose(1, 2))
            ds = torch.ops.aten._softmax_backward_data(dp, p, -1, p.dtype)
            if dsinks is not None and sunk is not None:
                dsinks -= (sunk * (p * dp).sum(-1)).sum(-1)
            # Not baddbmm_: on a slice it falls back to one small product after another.
            dv[:, first:end] += torch.bmm(p.transpose(1, 2), g)
            dk[:, first:end] += torch.bmm(ds.transpose(1, 2), q[:, rows])
            dq[:, rows] = torch.bmm(ds, k[:, first:end])
        dq, dk = dq.mul_(ctx.scale), dk.mul_(ctx.scale)
        dsinks = None if dsinks is None else dsinks.view(documents, heads).sum(0)
        back = (x.view(documents, heads, -1, x.shape[-1]).transpose(1, 2) for x in (dq, dk, dv))
        return *back, None, None, dsinks


def _probabilities(
    q: Tensor, k: Tensor, span: tuple[int, int, int], scale: float, window: int, column: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Of the queries q (D * heads, end - start, width) of a block over its keys, and what the sinks (D * heads, 1, 1) took of each query."""
    first, start, end = span
    scores = torch.baddbmm(_hidden(q, first, start, end, window), q, k[:, first:end].transpose(1, 2), alpha=scale)
    if column is None:
        return scores.softmax(-1), None
    whole = torch.cat((scores, column.expand(-1, end - start, -1)), -1).softmax(-1)
    return whole[..., :-1].contiguous(), whole[..., -1]


def _query_blocks(queries: int, length: int, window: int) -> Iterator[tuple[int, int, int]]:
    """For each block of the last `queries` of `length` positions: the first key that any of them sees, the first query, and the end of both."""
    for start in range(length - queries, length, QUERY_BLOCK):
        yield (max(0, start - window + 1) if window else 0), start, min(start + QUERY_BLOCK, length)


def _hidden(like: Tensor, first: int, start: int, end: int, window: int) -> Tensor:
    """(end - start, end - first) of -inf where query start + i may not see key first + j, else 0."""
    hidden = like.new_full((end - start, end - first), float("-inf"))
    future = hidden.triu(start - first + 1) if window else hidden.triu_(start - first + 1)
    if not window or end - first <= window:
        return future
    return future + hidden.tril(start - first - window)


def causal_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    window: int = 0,
    sinks: Tensor | None = None,
    beginning: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """q (D, Q, heads, width), k and v (D, S, kv_heads, ...) with heads a multiple of kv_heads -> (D, Q, heads, value). The queries are those of
    the last Q of S positions.

    `window` is the number of positions that a query sees, itself among them; 0: all before it. `sinks` (heads,): a learned score of each
    head that takes part in the softmax, with no value. `beginning`: keys and values (P, kv_heads, ...) that precede those of every row.
    """
    if beginning is not None:
        if not window and sinks is None and reads_in_place(q, k, v):
            return shared_attention(q, k, v, beginning, scale)
        unseen = max(0, len(beginning[0]) - window + 1) if window else 0
        k, v = (
            torch.cat((first[unseen:].expand(len(q), *first[unseen:].shape), own), 1)
            for first, own in zip(beginning, (k, v), strict=True)
        )
    if (
        sinks is not None and q.dtype == torch.bfloat16
    ):  # the softmax here is this module's own: fp32, as in the fused kernels
        return causal_attention(q.float(), k.float(), v.float(), scale, window, sinks).to(q.dtype)
    group, queries, length = q.shape[2] // k.shape[2], q.shape[1], k.shape[1]
    plain = queries == length and not 0 < window < length
    fits = plain and not BLOCKS_ARE_FASTER and reads_in_place(q, k, v)
    fused = fits or q.device.type != "cpu" or q.dtype != torch.float32
    if sinks is None and fused:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        bias = None if plain else _hidden(q, 0, length - queries, length, window)
        mixed = F.scaled_dot_product_attention(q, k, v, bias, is_causal=plain, scale=scale, enable_gqa=group > 1)
        return mixed.transpose(1, 2)
    if group > 1:
        k, v = (x.unsqueeze(3).expand(-1, -1, -1, group, -1).flatten(2, 3) for x in (k, v))
    return _BlockedAttention.apply(q, k, v, scale, window, sinks)  # type: ignore[return-value]


def attention_with_sinks(
    rows: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float, sinks: Tensor
) -> Tensor:
    """rows (B, kv_heads, R, width) against keys and values (B, kv_heads, S, width), `sinks` (kv_heads, R) a score of each row that has no
    value -> (B, kv_heads, R, width). For decoding: no gradient needed, few rows."""
    if rows.dtype == torch.bfloat16:
        bias = None if bias is None else bias.float()
        return attention_with_sinks(rows.float(), keys.float(), values.float(), bias, scale, sinks).to(rows.dtype)
    scores = torch.matmul(rows, keys.transpose(2, 3)) * scale
    scores = scores if bias is None else scores + bias
    column = sinks.to(scores.dtype).view(1, *sinks.shape, 1).expand(scores.shape[0], -1, -1, -1)
    probabilities = torch.cat((scores, column), -1).softmax(-1)[..., :-1]
    return torch.matmul(probabilities, values)
