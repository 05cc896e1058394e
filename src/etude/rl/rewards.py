"""Reward of a rollout as a sum of named components, each logged under its name.

    outcome    the grader's score
    kl         -beta * sum over sampled tokens of (logp_sampled - logp_reference): the k1 estimator (composer2-facts 4.3). It
               sits in the reward because differentiating k1 as a loss has zero expected gradient. A sum over the whole chain of
               segments, never a mean: the sum is the unbiased estimate of the sequence's KL, and a mean would reward length.
    length     -scale * C(x), the concave penalty of `length.py`
    behaviour  to-do items left unfinished and a last edit that no test run followed, from the harness' counters
Infra faults never come here (promise 8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from etude.rl.length import effort, penalty
from etude.rl.settings import RlSettings
from etude.trace.segment import Segment


def components(outcome: float, counters: Mapping[str, float], k1: float, settings: RlSettings) -> dict[str, float]:
    """The named components; the reward is their sum. `k1` is `k1_sum` of the rollout (0 when kl_beta is 0)."""
    behaviour = -settings.unfinished_todo * counters.get("todos_unfinished", 0.0)
    behaviour -= settings.untested_edit * (counters.get("edits_untested", 0.0) > 0)
    return {
        "outcome": outcome,
        "kl": -settings.kl_beta * k1,
        "length": -settings.length.scale * penalty(effort(counters, settings.length.weights), settings.length),
        "behaviour": behaviour,
    }


def k1_sum(segments: Sequence[Segment], reference: Sequence[np.ndarray]) -> float:
    """Sum over sampled tokens of log p_sampled - log p_reference; `reference[i]` is (T_i,) beside segment i."""
    total = 0.0
    for segment, logp in zip(segments, reference, strict=True):
        total += float((segment.logprobs[segment.sampled].astype(np.float64) - logp[segment.sampled]).sum())
    return total
