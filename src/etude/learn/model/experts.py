"""The routed experts: one SwiGLU per expert over the tokens that chose it, weights fused in 3-D tensors.

Three back ends compute the same sum; `auto` takes the fastest for the shape (`benchmarks/model_speed.py --experts` shows them).
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.config import ModelConfig
from etude.learn.model.gather import combine, spread
from etude.learn.model.linear import linear


def swiglu(gate_up: Tensor) -> Tensor:
    """(..., 2I) to (..., I): silu(gate) * up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def _sorted_by_expert(experts: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Order (N * K,) of the choices by expert, its inverse, and how many choices each expert got (E,)."""
    flat = experts.flatten()
    order = flat.argsort(stable=True)
    inverse = torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel(), device=order.device))
    return order, inverse, torch.bincount(flat, minlength=count)


def loop_experts(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    """One small dense layer after another: the least memory traffic for many tokens on a CPU."""
    order, inverse, counts = _sorted_by_expert(experts, gate_up.shape[0])
    parts = spread(x, order, inverse, experts.shape[1]).split(counts.tolist())
    y = [linear(swiglu(linear(part, up)), low) for part, up, low in zip(parts, gate_up, down, strict=True)]
    return combine(torch.cat(y), weights.to(x.dtype), order, inverse)


def grouped_experts(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    """Two grouped matrix products: the fewest kernel calls, no wait for the counts."""
    order, inverse, counts = _sorted_by_expert(experts, gate_up.shape[0])
    ends = counts.cumsum(0).int()
    parts = spread(x, order, inverse, experts.shape[1])
    inner = swiglu(F.grouped_mm(parts, gate_up.transpose(1, 2), offs=ends))
    return combine(F.grouped_mm(inner, down.transpose(1, 2), offs=ends), weights.to(x.dtype), order, inverse)


def dense_experts(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    """Every expert for every token, zero weight for those not chosen: no gathers at all, E / K times the arithmetic."""
    count, tokens = gate_up.shape[0], x.shape[0]
    dense = weights.new_zeros(tokens, count).scatter(1, experts, weights)  # (N, E)
    inner = swiglu(torch.bmm(x.expand(count, -1, -1), gate_up.transpose(1, 2)))  # (E, N, I)
    inner = (inner * dense.t().unsqueeze(-1)).transpose(0, 1).flatten(1)  # (N, E * I)
    return inner @ down.transpose(1, 2).flatten(0, 1)


# From here on a CPU's matrix products outweigh the cost of calling them one by one, and small intermediates stay in its cache
# (one core, hidden 128: equal near 64 choices per expert, loop 1.9x faster at 2,000).
LOOP_CHOICES_PER_EXPERT = 64
# On a GPU grouped_mm has no fp32 kernel and starts one product after another, so few tokens are cheaper through every expert: up to this
# much work per expert (tokens * H * I) that takes 0.2 to 0.5 of the time, with 32 and with 128 experts (benchmarks/gpu.py experts).
DENSE_WORK_PER_EXPERT = 1 << 27
# grouped_mm refuses rows of other lengths, and float64.
GROUPED_ALIGNMENT_BYTES = 16

ExpertBackEnd = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
BACK_ENDS: dict[str, ExpertBackEnd] = {"loop": loop_experts, "grouped": grouped_experts, "dense": dense_experts}


def run_experts(
    x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, weights: Tensor, back_end: str = "auto"
) -> Tensor:
    """Tokens x (N, H), choice and weights (N, K), gate_up (E, 2I, H), down (E, H, I) -> (N, H)."""
    chosen = _quickest(x, down, experts) if back_end == "auto" else back_end
    return BACK_ENDS[chosen](x, gate_up, down, experts, weights)


def _quickest(x: Tensor, down: Tensor, experts: Tensor) -> str:
    """The back end for tokens x (N, H), down (E, H, I) and the choice (N, K)."""
    count, hidden, inner = down.shape
    on_cpu = x.device.type == "cpu"
    if not on_cpu and x.dtype == torch.float32 and x.shape[0] * hidden * inner <= DENSE_WORK_PER_EXPERT:
        return "dense"
    crowded = experts.numel() >= LOOP_CHOICES_PER_EXPERT * count
    aligned = not any(width * x.element_size() % GROUPED_ALIGNMENT_BYTES for width in (hidden, inner))
    takes = aligned and x.dtype != torch.float64
    return "grouped" if takes and not (crowded and on_cpu) else "loop"


class Experts(nn.Module):
    """The fused weights of one layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_up = nn.Parameter(torch.empty(config.experts, 2 * config.moe_intermediate, config.hidden_size))
        self.down = nn.Parameter(torch.empty(config.experts, config.hidden_size, config.moe_intermediate))

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        return run_experts(x, self.gate_up, self.down, experts, weights)
