"""Rollouts that hold a number which is none: found by name, so that their group is left out of a policy step and the rest is trained.

A group goes as a whole: its other members are held against the mean of rewards that the broken one has no part in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from etude.core.trace.segment import Rollout


def broken_rollouts(
    rollouts: Sequence[Rollout], advantages: Sequence[float], current: Sequence[Sequence[np.ndarray]]
) -> dict[int, str]:
    """By index of the rollout what is broken: its advantage (NaN or infinite), a logprob of the sampler or of the trainer (NaN or +inf), or a
    token to which both give probability 0, which has no ratio. `trust` handles a probability of 0 by one of them.

    `current` are the trainer's logprobs (T_i,) by rollout and segment.
    """
    found: dict[int, str] = {}
    for index, (rollout, advantage, logprobs) in enumerate(zip(rollouts, advantages, current, strict=True)):
        if not math.isfinite(advantage):
            found[index] = f"its advantage is {advantage}"
            continue
        for segment, now in zip(rollout.segments, logprobs, strict=True):
            for whose, values in (("sampler", segment.logprobs), ("trainer", now)):
                sampled = values[segment.sampled]
                odd = sampled[np.isnan(sampled) | (sampled == np.inf)]
                if len(odd):
                    found[index] = f"{len(odd)} of its tokens have a logprob of {odd[0]} by the {whose}"
            impossible = np.isneginf(segment.logprobs) & np.isneginf(now) & segment.sampled
            if impossible.any():
                found[index] = f"{impossible.sum()} of its tokens have a logprob of -inf by the sampler and the trainer"
    return found


def broken_lines(rollouts: Sequence[Rollout], broken: dict[int, str]) -> list[str]:
    """A line for each broken rollout: its name, its task, what is not finite and what follows."""
    return [
        f"rollout {rollouts[index].id} (task {rollouts[index].task_id}): {why}; its group {rollouts[index].group} is left out of the step"
        for index, why in sorted(broken.items())
    ]
