"""What a person's own module may look like: a reward component, an importance weight and advantages (docs/extending.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from etude.core.trace.segment import Rollout
from etude.learn.train.importance_settings import ImportanceSettings
from etude.rl.rewards.component import RewardInput


@dataclass(frozen=True)
class ManyTurns:
    """Minus the turns beyond `free`."""

    free: int = 3
    kind = "penalty"
    needs = ("turns",)

    def value(self, subject: RewardInput) -> float | None:
        return -max(0.0, subject.counter("turns") - self.free)


many_turns = ManyTurns()


def square_root(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    """(N,) the square root of the ratio, which grows more slowly than the ratio."""
    return (0.5 * (logprobs - sampler)).exp()


def centred(rewards: Sequence[float], groups: Sequence[int], rollouts: Sequence[Rollout]) -> list[float]:
    """Reward minus the mean of the whole step."""
    mean = sum(rewards) / len(rewards) if rewards else 0.0
    return [reward - mean for reward in rewards]


def short(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    return torch.ones(1)


def negative(logprobs: Tensor, sampler: Tensor, advantages: Tensor, settings: ImportanceSettings) -> Tensor:
    return -torch.ones_like(logprobs)
