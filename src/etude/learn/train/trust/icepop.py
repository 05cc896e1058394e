"""IcePop: w = r within [low, high], 0 outside: both tails are dropped, whatever the advantage (Ring-1T: 0.5 and 5).

Made for mixtures of experts, whose trainer and sampler disagree on a few tokens altogether: those teach nothing then. What is dropped is
still counted in the constant that the loss is divided by, so that dropping does not enlarge what is kept.
"""

from __future__ import annotations

from torch import Tensor

from etude.learn.train.trust.settings import TrustSettings


def weights(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: TrustSettings) -> Tensor:
    """(N,) the ratio or 0."""
    band, ratios = settings.icepop, (logprobs - sampler).exp()
    return ratios.masked_fill((ratios < band.low) | (ratios > band.high), 0.0)
