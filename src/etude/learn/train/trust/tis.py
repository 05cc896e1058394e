"""Truncated importance sampling: w = min(r, cap), r = p_trainer / p_sampler (the cap is 2 to 5 in public recipes).

Unbiased but for the cap, which bounds the variance from above; a token that has become rare counts little, in proportion.
"""

from __future__ import annotations

from torch import Tensor

from etude.learn.train.trust.settings import TrustSettings


def weights(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: TrustSettings) -> Tensor:
    """(N,) in (0, cap]."""
    return (logprobs - sampler).exp().clamp(max=settings.tis.cap)
