"""Advantages: reward minus the mean of the group, nothing else (Composer 2 technical report, after Dr. GRPO).

How it differs from GRPO: no division by the group's standard deviation (it would blow up tiny differences when all rollouts
are equally correct) and no normalisation by length (it favours long failures). The member of a group is the rollout, however
many segments self-summaries cut it into (promise 4): every sampled token of all its segments carries this one number.

Worked example, 4 rollouts, outcome 1, 0, 0, 1 and length penalties 0.02, 0.01, 0.03, 0.06:
rewards 0.98, -0.01, -0.03, 0.94; mean 0.47; advantages 0.51, -0.48, -0.50, 0.47. They sum to zero.
If all four were correct with the same penalties: 0.01, 0.02, 0.00, -0.03; small, as they should be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def advantages(rewards: Sequence[float]) -> list[float]:
    """One advantage per rollout of the group, in order; they sum to zero. All are zero where a reward is not finite: its members can't be
    compared, and a NaN would reach every one of them. Who computes rewards names the rollout (`rl/learner.py`)."""
    if not rewards:
        raise ValueError("a group without rollouts has no advantages")
    if not all(map(math.isfinite, rewards)):
        return [0.0] * len(rewards)
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]
