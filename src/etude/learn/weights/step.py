"""A synthetic step of RL: bf16 weights before and after one Adam update of their fp32 masters.

Weights are normal with the spread of trained layers. The update is Adam's for gradients that are white noise, which is what
one weight's gradient looks like from step to step in RL: with beta1 = 0.9 the first moment of such noise has
sqrt((1 - beta1) / (1 + beta1)) = 0.23 of the gradient's standard deviation, and the second moment is about its square, so
each master moves by a normal step of 0.23 learning rates. A bf16 weight changes when its master crosses a rounding boundary.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

BETA1 = 0.9
SPREAD = 0.02
# A layer of a mid-size model; the last tensor takes the rest.
TENSOR_ELEMENTS = 8 << 20


def step(raw_bytes: int, learning_rate: float, seed: int = 0) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Two bf16 states of about `raw_bytes` each: before and after one step."""
    if raw_bytes < 2 or learning_rate < 0:
        raise ValueError(
            f"{raw_bytes} bytes at learning rate {learning_rate}; give at least 2 bytes and no negative rate"
        )
    generator = torch.Generator().manual_seed(seed)
    move = learning_rate * math.sqrt((1 - BETA1) / (1 + BETA1))
    before, after, left = {}, {}, raw_bytes // 2
    while left:
        size = min(left, TENSOR_ELEMENTS)
        master = SPREAD * torch.randn(size, generator=generator)
        name = f"layer.{len(before):04d}.weight"
        before[name] = master.bfloat16()
        after[name] = master.add_(torch.randn(size, generator=generator), alpha=move).bfloat16()
        left -= size
    return before, after
