"""What one rank of a test of RL's trainer computes of a policy step, next to what one process computes."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from layout_lab import prepared
from torch import Tensor
from train_lab import random_rollouts

from etude.core.trace.segment import Rollout
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.parallel.shared_training import without_weights
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.ranks import Ranks
from etude.learn.train.settings import PolicyStepSettings

ADVANTAGES = [0.5, -0.25, 1.0, 0.3, -1.0, 0.1, 0.7, -0.6, 0.2]
# Small micro-batches, so that ranks have several of them, and not as many each.
SETTINGS = dict(batch_tokens=64, graph_tokens=0, clip_norm=1e9, router_bias_rate=0.01, unreplayed_every=1)


@dataclass(frozen=True)
class PolicyCase:
    """A layout; what is trained, "weights" or "lora"; how many rollouts there are; and whether groups have a spread."""

    layout: dict[str, int]
    trained: str
    rollouts: int = 9
    spread: bool = True

    @property
    def label(self) -> str:
        return f"{self.layout}, {self.trained}, {self.rollouts} rollouts{'' if self.spread else ' without spread'}"


@dataclass(frozen=True)
class Step:
    """Of one policy step: logprobs of all rollouts, the gradient by name, figures, and the routers' bias after it."""

    logprobs: list[np.ndarray]
    gradient: dict[str, Tensor]
    figures: dict[str, float]
    bias: list[Tensor]


def rollouts_of(name: str, count: int) -> list[Rollout]:
    """As other weights would have sampled them, so that importance ratios are not 1."""
    sampler = prepared(name, "weights")
    with torch.no_grad():
        sampler.head.weight.mul_(1.05)
    return random_rollouts(sampler, count, seed=4)


def one_step(trainer: PolicyTrainer, case: PolicyCase, name: str) -> Step:
    """Without moving the weights."""
    rollouts = rollouts_of(name, case.rollouts)
    optimizers: Any = trainer._optimizers
    optimizers.step = optimizers.zero_grad = lambda: None
    if not case.spread:
        optimizers.zero_grad = lambda: [setattr(p, "grad", None) for p in optimizers.params]
    scores = trainer.score(rollouts)
    logprobs = [part for parts in (scores.current, scores.unreplayed or []) for rollout in parts for part in rollout]
    figures = trainer.update(rollouts, [a * case.spread for a in ADVANTAGES[: case.rollouts]], scores)
    gradient = {key: p.grad for key, p in trainer.model.named_parameters() if p.grad is not None}
    bias = [router.bias for router in trainer._routers if router.bias is not None]
    return Step(logprobs, gradient, figures, bias)


def settings() -> PolicyStepSettings:
    return PolicyStepSettings.model_validate(SETTINGS)


def ranks_step_alike(name: str, cases: list[PolicyCase]) -> dict[str, dict[str, float]]:
    """In each rank, by case: the largest differences from one process."""
    return {case.label: _difference(name, case) for case in cases}


def _difference(name: str, case: PolicyCase) -> dict[str, float]:
    from torch.distributed.tensor import DTensor

    from etude.learn.parallel.shard import Meshes, whole
    from etude.learn.parallel.split_model import split_over

    model = prepared(name, case.trained)
    alone = one_step(PolicyTrainer(copy.deepcopy(model), None, settings()), case, name)
    layout = ParallelLayout.model_validate(case.layout)
    meshes, part = Meshes(layout), without_weights(model, model)
    shared = split_over(part, meshes, "fp32", model if shared_rank() == 0 else None)
    trainer = PolicyTrainer(part, None, settings(), ranks=default_ranks(), shared=shared)
    mine = one_step(trainer, case, name)
    worst = max(
        (_apart(whole(gradient), _own(alone.gradient, key, meshes)) for key, gradient in mine.gradient.items()),
        default=0.0,
    )
    names = {key.replace("experts.local.", "experts.") for key in mine.gradient}
    return {
        "names": float(len(names ^ set(alone.gradient))),
        "gradient": worst,
        "logprobs": max(float(np.abs(a - b).max()) for a, b in zip(mine.logprobs, alone.logprobs, strict=True)),
        "norm": abs(mine.figures["grad_norm"] / max(alone.figures["grad_norm"], 1e-30) - 1) if case.spread else 0.0,
        "k3": abs(mine.figures["k3"] / alone.figures["k3"] - 1),
        "bias": float(sum(bias.double().square().sum() for bias in mine.bias)),
        "whole": float(sum(not isinstance(parameter, DTensor) for parameter in part.parameters())),
    }


def shared_rank() -> int:
    import torch.distributed as dist

    return dist.get_rank()


def default_ranks() -> Ranks:
    import torch.distributed as dist

    from etude.learn.train.gloo_ranks import GroupRanks

    group = dist.distributed_c10d._get_default_group()
    return GroupRanks(group, dist.get_rank(), dist.get_world_size(), 60.0)


def _own(gradient: dict[str, Tensor], key: str, meshes: Any) -> Tensor:
    wanted = gradient[key.replace("experts.local.", "experts.")]
    if "experts.local." not in key:
        return wanted
    return wanted.chunk(meshes.layout.experts)[meshes.expert_rank]


def _apart(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max().clamp(min=1e-3))
