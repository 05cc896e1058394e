"""No correction: every token counts as if the trainer had sampled it. What staleness and mismatch bias stays in the gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from etude.learn.train.trust.settings import TrustSettings


def weights(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: TrustSettings) -> Tensor:
    """(N,) ones."""
    return torch.ones_like(logprobs)
