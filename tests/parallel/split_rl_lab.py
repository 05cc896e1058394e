"""RL's trainer as one rank of a test: a checkpoint, groups of rollouts, and what it makes of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from layout_lab import EXPERTS
from policy_lab import default_ranks
from train_lab import sampled_segment

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.core.trace.segment import Rollout
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.parallel.launched import RankLost
from etude.rl.learner import Learner
from etude.rl.rewards.library import COMPONENTS
from etude.rl.settings import RlSettings
from etude.rl.store import GroupStore

STEPS, PER_STEP, SIZE = 4, 2, 3
SAVED = 2  # the step after which a state is saved
SPLIT = {"shard": 2, "experts": 2}
LORA = {"rank": 2, "alpha": 4, "targets": ["attention", "dense"]}


def prepare(folder: Path) -> Path:
    """A run's folder with the groups of all steps; the checkpoint."""
    tokenizer = byte_tokenizer()
    tokenizer.save(str(folder / "tokenizer.json"))
    sizes = dict(family="qwen3_moe", hidden_size=32, layers=2, heads=2, kv_heads=2, head_dim=16, init_head_std=0.3)
    model = new_model(ModelSettings.model_validate(sizes | EXPERTS), tokenizer.get_vocab_size())
    save_checkpoint(model, folder / "model", folder)
    rng, store = np.random.default_rng(0), GroupStore(folder / "groups")
    for group in range(STEPS * PER_STEP):
        prompt = rng.integers(0, 200, 12)
        store.save(group, [_rollout(model, rng, group, member, prompt) for member in range(SIZE)])
    return folder / "model"


def _rollout(model: Any, rng: np.random.Generator, group: int, member: int, prompt: np.ndarray) -> Rollout:
    ids = np.concatenate((prompt, rng.integers(0, 200, int(rng.integers(5, 60)))))
    segment = sampled_segment(model, ids, np.arange(len(ids)) >= len(prompt))
    counters = {name: float(rng.integers(9)) for one in COMPONENTS for name in one.needs}
    reward = {"outcome": float(rng.random() < 0.5)}
    return Rollout(f"{group}.{member}", f"task-{group}", group, [segment], reward, counters)


def settings_of(parallel: dict[str, int], lora: bool = False, kl_beta: float = 0.01) -> RlSettings:
    update = {"warmup_steps": 0} | ({"lora": LORA} if lora else {})
    return RlSettings.model_validate(
        {"steps": STEPS, "kl_beta": kl_beta, "update": update, "parallel": parallel, "anchor_every": 2}
    )


def groups_of(step: int) -> list[int]:
    return list(range(step * PER_STEP, (step + 1) * PER_STEP))


def train(learner: Learner, first: int = 0) -> list[str]:
    """The digests of the steps from `first` on."""
    digests = []
    for step in range(first, STEPS):
        digests.append(learner.train(groups_of(step)).digest)
        if step + 1 == SAVED and not first:
            learner.save(SAVED)
    return digests


def by_one(checkpoint: Path, folder: Path, first: int = 0, lora: bool = False) -> Learner:
    """One process, from the state after `first` steps."""
    learner = Learner(checkpoint, folder, settings_of({}, lora), 1)
    learner.restore(first)
    train(learner, first)
    return learner


def split(checkpoint: Path, folder: Path, parallel: dict[str, int] = SPLIT, lora: bool = False) -> Any:
    from etude.rl.split_learner import SplitLearner

    return SplitLearner(checkpoint, folder, settings_of(parallel, lora), 1, default_ranks())


def live(checkpoint: Path, folder: Path, lora: bool) -> dict[str, Any]:
    """In each rank: a whole life, with the weights published and exported, and a second one from the saved state on."""
    learner = split(checkpoint, folder, lora=lora)
    learner.restore(0)
    digests = train(learner)
    published = learner.publish(STEPS), learner.publish(STEPS - 1)
    learner.export(folder / "exported")
    weighs = sum(parameter.to_local().numel() for parameter in learner.trainer.model.parameters())
    again = split(checkpoint, folder, lora=lora)
    again.restore(SAVED)
    first = learner.ranks.rank == 0
    cost = learner.publication_cost(STEPS) if first else None
    return {"digests": digests, "again": train(again, SAVED), "published": published, "numbers": weighs, "cost": cost}


def go_on(checkpoint: Path, folder: Path) -> bool:
    """In each rank, from the state of one process."""
    learner = split(checkpoint, folder)
    learner.restore(SAVED)
    train(learner, SAVED)
    learner.export(folder / "exported")
    return True


def lose_a_rank(checkpoint: Path, folder: Path) -> None:
    """The first rank writes down what it says when the other one ends in the middle of a step."""
    learner = split(checkpoint, folder)
    learner.restore(0)
    if learner.ranks.rank:
        learner.trainer.model.blocks[1].register_forward_pre_hook(lambda *_: os._exit(0))
    try:
        learner.train(groups_of(0))
    except RankLost as lost:
        (folder / "said").write_text(str(lost))


def spoil_a_copy(checkpoint: Path, folder: Path) -> str:
    """What each rank says when a copy of a part of the model is not the same any more."""
    from etude.learn.train.ranks import RanksDiverged

    learner = split(checkpoint, folder, {"replicate": 2})
    learner.restore(0)
    with torch.no_grad():
        learner.trainer.model.blocks[0].attention_norm.weight.to_local()[3] += 1e-3 * learner.ranks.rank
    try:
        learner.train(groups_of(0))
    except RanksDiverged as diverged:
        return str(diverged)
    return "no difference"


def exported(folder: Path) -> dict[str, Any]:
    return dict(load_checkpoint(folder / "exported").state_dict())
