"""The learning rate as a pure function of how much of the run is done."""

from __future__ import annotations

import math

from etude.learn.train.settings import PolicyStepSettings, ScheduleSettings


def lr_factor(settings: ScheduleSettings, done: float) -> float:
    """Factor of the peak learning rate at `done` in [0, 1], the share of steps or of core time that is spent.

    The first steps of a warm-up get a factor above 0, else they would be lost.
    """
    done = min(max(done, 0.0), 1.0)
    if done < settings.warmup_share:
        return max(done / settings.warmup_share, 0.01)  # 1%: small enough for cold moments, not a wasted step
    if settings.shape == "constant":
        return 1.0
    if settings.shape == "cosine":
        rest = (done - settings.warmup_share) / max(1.0 - settings.warmup_share, 1e-9)
        return settings.floor + (1.0 - settings.floor) * 0.5 * (1.0 + math.cos(math.pi * rest))
    decay_start = 1.0 - settings.decay_share
    if done <= decay_start:
        return 1.0
    left = (1.0 - done) / settings.decay_share  # from 1 to exactly 0: rounding never makes a rate negative
    return settings.floor + (1.0 - settings.floor) * left


# What is left of a policy's learning rate after its decay: the last steps still learn.
POLICY_FLOOR = 0.1


def policy_lr_factor(settings: PolicyStepSettings, step: int, total: int | None) -> float:
    """Factor of the peak learning rate at policy step `step` (from 1) of `total`; without a total there is no decay."""
    warm = min(1.0, step / max(settings.warmup_steps, 1))
    if total is None or not settings.decay_share:
        return warm
    left = max(total - step, 0) / (settings.decay_share * total)
    return min(warm, POLICY_FLOOR + (1.0 - POLICY_FLOOR) * min(1.0, left))
