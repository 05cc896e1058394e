"""How far the trainer's logprobs are from those the sampler reported.

With r = p_trainer / p_sampler: k3 = (r - 1) - log r, whose mean estimates KL(sampler || trainer) and is 0 only if all
agree; and the 99th percentile of |log r|, which a flipped expert shows first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Mismatch:
    """Over all sampled tokens; nan if there were none."""

    k3: float
    p99: float

    @classmethod
    def of(cls, trainer: Sequence[Tensor], sampler: Sequence[Tensor]) -> Mismatch:
        """Of matching lists of (N,) logprobs on the CPU. float64: k3 of two fp32 numbers that nearly agree is all rounding. The percentile is
        numpy's, which has no largest size; torch refuses more than 2^24 values."""
        if not trainer:
            return cls(float("nan"), float("nan"))
        log_r = torch.cat(list(trainer)).double() - torch.cat(list(sampler)).double()
        k3 = torch.where(log_r.isposinf(), log_r, torch.expm1(log_r) - log_r)  # infinity minus infinity is no number
        with np.errstate(invalid="ignore"):  # of a token that the sampler gave probability 0
            return cls(float(k3.mean()), float(np.quantile(log_r.abs().numpy(), 0.99)))
