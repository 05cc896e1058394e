"""The routed experts: one gated feed-forward layer per expert over the tokens that chose it, weights fused in 3-D tensors.

Three back ends compute the same sum; `auto` takes the fastest for the shape (`benchmarks/model_speed.py --experts` shows them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.config import ModelConfig
from etude.learn.model.gather import combine, spread
from etude.learn.model.linear import linear

Activation = Callable[[Tensor], Tensor]
Product = Callable[[Tensor, Tensor], Tensor]

# gpt-oss: the sharpness of its sigmoid, and the bound on both halves (configuration of GptOssForCausalLM).
CLAMPED_ALPHA, CLAMPED_LIMIT = 1.702, 7.0


def swiglu(gate_up: Tensor) -> Tensor:
    """(..., 2I) to (..., I): silu(gate) * up."""
    if torch.is_grad_enabled() and gate_up.requires_grad:
        return _SwiGlu.apply(gate_up)  # type: ignore[return-value]
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


class _SwiGlu(torch.autograd.Function):
    """The same, keeping (..., 2I) for its backward pass instead of (..., 3I): silu(gate) is computed again."""

    @staticmethod
    def forward(ctx, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate) * up

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        gate, up = ctx.saved_tensors[0].chunk(2, dim=-1)
        return torch.cat((torch.ops.aten.silu_backward(grad * up, gate), grad * F.silu(gate)), -1)


def geglu_tanh(gate_up: Tensor) -> Tensor:
    """(..., 2I) to (..., I): gelu(gate) * up, the gelu by its tanh approximation."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


def clamped_swiglu(gate_up: Tensor) -> Tensor:
    """(..., 2I) to (..., I): gate * sigmoid(alpha * gate) * (up + 1), the gate bounded above and up on both sides."""
    gate, up = gate_up.chunk(2, dim=-1)
    gate, up = gate.clamp(max=CLAMPED_LIMIT), up.clamp(-CLAMPED_LIMIT, CLAMPED_LIMIT)
    return gate * torch.sigmoid(CLAMPED_ALPHA * gate) * (up + 1)


ACTIVATIONS: dict[str, Activation] = {"silu": swiglu, "gelu_tanh": geglu_tanh, "clamped_swiglu": clamped_swiglu}


class ExpertWeights(NamedTuple):
    """The fused weights of one layer: `gate_up` (E, 2I, H), `down` (E, H, I), biases (E, 2I) and (E, H) or None; `product` of tokens (M, K) by
    one of its matrices (N, K)."""

    gate_up: Tensor
    down: Tensor
    activation: Activation = swiglu
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    product: Product = linear


def _sorted_by_expert(experts: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Order (N * K,) of the choices by expert, its inverse, and how many choices each expert got (E,)."""
    flat = experts.flatten()
    order = flat.argsort(stable=True)
    inverse = torch.empty_like(order).index_copy_(0, order, torch.arange(order.numel(), device=order.device))
    return order, inverse, torch.bincount(flat, minlength=count)


def loop_experts(x: Tensor, layer: ExpertWeights, experts: Tensor, weights: Tensor) -> Tensor:
    """One small dense layer after another: the least memory traffic for many tokens on a CPU."""
    order, inverse, counts = _sorted_by_expert(experts, layer.gate_up.shape[0])
    parts = spread(x, order, inverse, experts.shape[1]).split(counts.tolist())
    y = [_one_expert(part, layer, number) for number, part in enumerate(parts)]
    return combine(torch.cat(y), weights.to(x.dtype), order, inverse)


def _one_expert(x: Tensor, layer: ExpertWeights, number: int) -> Tensor:
    inner = layer.product(x, layer.gate_up[number])
    if layer.gate_up_bias is not None:
        inner = inner + layer.gate_up_bias[number]
    y = layer.product(layer.activation(inner), layer.down[number])
    return y if layer.down_bias is None else y + layer.down_bias[number]


def grouped_experts(x: Tensor, layer: ExpertWeights, experts: Tensor, weights: Tensor) -> Tensor:
    """Two grouped matrix products: the fewest kernel calls, no wait for the counts."""
    order, inverse, counts = _sorted_by_expert(experts, layer.gate_up.shape[0])
    ends = counts.cumsum(0).int()
    visited = experts.flatten()[order]  # (N * K,) the expert of each row
    parts = spread(x, order, inverse, experts.shape[1])
    inner = F.grouped_mm(parts, layer.gate_up.transpose(1, 2), offs=ends)
    if layer.gate_up_bias is not None:
        inner = inner + layer.gate_up_bias.index_select(0, visited)
    y = F.grouped_mm(layer.activation(inner), layer.down.transpose(1, 2), offs=ends)
    if layer.down_bias is not None:
        y = y + layer.down_bias.index_select(0, visited)
    return combine(y, weights.to(x.dtype), order, inverse)


def dense_experts(x: Tensor, layer: ExpertWeights, experts: Tensor, weights: Tensor) -> Tensor:
    """Every expert for every token, zero weight for those not chosen: no gathers at all, E / K times the arithmetic."""
    count, tokens = layer.gate_up.shape[0], x.shape[0]
    weights = weights.to(x.dtype)
    dense = weights.new_zeros(tokens, count).scatter(1, experts, weights)  # (N, E)
    inner = torch.bmm(x.expand(count, -1, -1), layer.gate_up.transpose(1, 2))  # (E, N, 2I)
    if layer.gate_up_bias is not None:
        inner = inner + layer.gate_up_bias.unsqueeze(1)
    inner = (layer.activation(inner) * dense.t().unsqueeze(-1)).transpose(0, 1).flatten(1)  # (N, E * I)
    y = inner @ layer.down.transpose(1, 2).flatten(0, 1)
    return y if layer.down_bias is None else y + dense @ layer.down_bias


# From here on a CPU's matrix products outweigh the cost of calling them one by one, and small intermediates stay in its cache
# (one core, hidden 128: equal near 64 choices per expert, loop 1.9x faster at 2,000).
LOOP_CHOICES_PER_EXPERT = 64
# On a GPU grouped_mm has no fp32 kernel and starts one product after another, so few tokens are cheaper through every expert: up to this
# much work per expert (tokens * H * I) that takes 0.2 to 0.5 of the time, with 32 and with 128 experts (benchmarks/gpu.py experts).
DENSE_WORK_PER_EXPERT = 1 << 27
# grouped_mm refuses rows of other lengths, and float64.
GROUPED_ALIGNMENT_BYTES = 16

ExpertBackEnd = Callable[[Tensor, ExpertWeights, Tensor, Tensor], Tensor]
BACK_ENDS: dict[str, ExpertBackEnd] = {"loop": loop_experts, "grouped": grouped_experts, "dense": dense_experts}


def run_experts(x: Tensor, layer: ExpertWeights, experts: Tensor, weights: Tensor, back_end: str = "auto") -> Tensor:
    """Tokens x (N, H), choice and weights (N, K) -> (N, H)."""
    chosen = _quickest(x, layer.down, experts) if back_end == "auto" else back_end
    if layer.product is not linear:
        chosen = "loop"  # the others multiply by all experts at once
    return BACK_ENDS[chosen](x, layer, experts, weights)


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
    """The fused weights of one layer as parameters."""

    gate_up_bias: Tensor | None
    down_bias: Tensor | None
    compute: torch.dtype | None = None  # the type of the products; None: that of tokens and weights (`model.compute`)
    back_end = "auto"
    product: Product = staticmethod(linear)  # of tokens by an expert's matrix (`model.compute`)

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        count, hidden, inner = config.experts, config.hidden_size, config.moe_intermediate
        self.activation = ACTIVATIONS[config.activation]
        self.gate_up = nn.Parameter(torch.empty(count, 2 * inner, hidden))
        self.down = nn.Parameter(torch.empty(count, hidden, inner))
        biases = config.expert_bias
        self.register_parameter("gate_up_bias", nn.Parameter(torch.empty(count, 2 * inner)) if biases else None)
        self.register_parameter("down_bias", nn.Parameter(torch.empty(count, hidden)) if biases else None)

    @property
    def weights(self) -> ExpertWeights:
        """The parameters, for `run_experts`."""
        return ExpertWeights(self.gate_up, self.down, self.activation, self.gate_up_bias, self.down_bias)

    def forward(self, x: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
        x = x if self.compute is None else x.to(self.compute)
        layer = self.weights
        biases = (None if b is None else b.to(x.dtype) for b in (layer.gate_up_bias, layer.down_bias))
        stacks = (layer.gate_up.to(x.dtype), layer.down.to(x.dtype))
        layer = ExpertWeights(*stacks, layer.activation, *biases, product=self.product)
        return run_experts(x, layer, experts, weights, self.back_end)
