"""DPPO's mask in its binary total-variation form (arXiv 2602.04879): the trust region is a distance of probabilities, not their ratio.

With p = p_trainer(token), q = p_sampler(token): dropped if p - q > divergence for A > 0, or q - p > divergence for A < 0. |p - q| is the total
variation between the two distributions seen as "this token or another", a lower bound of the whole one (data processing). A rare token may
so change its ratio tenfold, while a likely one that lost a fifth of all probability is stopped; ratios do it the other way round.
A kept token counts its ratio, up to `cap` (ours: the ratio of a rare token has no bound).
"""

from __future__ import annotations

from torch import Tensor

from etude.learn.train.trust.settings import TrustSettings


def weights(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: TrustSettings) -> Tensor:
    """(N,) the ratio, at most `cap`, or 0."""
    numbers = settings.dppo_mask
    moved = logprobs.exp() - sampler.exp()
    pushed = moved * advantages.sign()
    return (logprobs - sampler).exp().clamp(max=numbers.cap).masked_fill(pushed > numbers.divergence, 0.0)
