"""The KL to the reference as a reward: minus the sum over sampled tokens of log p_sampled - log p_reference, the k1 estimator
(Composer 2 technical report).

It sits in the reward because differentiating k1 as a loss has zero expected gradient. A sum over the whole chain of segments,
never a mean: the sum is the unbiased estimate of the sequence's KL, and a mean would reward length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from etude.core.trace.segment import Segment
from etude.rl.rewards.component import Measure, RewardInput


def k1_sum(segments: Sequence[Segment], reference: Sequence[np.ndarray]) -> float:
    """Sum over sampled tokens of log p_sampled - log p_reference; `reference[i]` is (T_i,) for segment i. Nats."""
    total = 0.0
    for segment, logp in zip(segments, reference, strict=True):
        total += float((segment.logprobs[segment.sampled].astype(np.float64) - logp[segment.sampled]).sum())
    return total


def _kl(subject: RewardInput) -> float | None:
    return None if subject.k1 is None else -subject.k1


KL = Measure("kl", "exact", (), _kl)
