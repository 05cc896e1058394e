"""RMSNorm, computed in fp32 whatever the input's type (arXiv 1910.07467)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """x / rms(x) * (offset + weight) over the last dimension; same shape and type out. `offset` is 1 in Gemma and else 0."""

    def __init__(self, width: int, eps: float, offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps, self.offset = eps, offset

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight + 1 if self.offset else self.weight
        if x.dtype != weight.dtype:
            return F.rms_norm(x.to(weight.dtype), self.weight.shape, weight, self.eps).to(x.dtype)
        return F.rms_norm(x, self.weight.shape, weight, self.eps)
