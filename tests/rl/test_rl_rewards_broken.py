"""Rollouts with broken calls stay in the batch. Where they are dropped, a policy that sees that it will fail learns to break its call:
"no signal" is a reward, and the best one in sight.

The task is a bandit with one thing to know: a rollout sees whether it is stuck, goes on or breaks its call, and passes in 1 of 10
if it was stuck and went on, in 9 of 10 if it was not. Rewards and advantages are the real ones; the gradient is the score function.
"""

import numpy as np
import pytest

from etude.core.trace.segment import Rollout
from etude.rl.advantage import advantages
from etude.rl.rewards.component import RewardInput
from etude.rl.rewards.library import measure_components
from etude.rl.rewards.mix import mix_at, mix_rewards
from etude.rl.settings import LengthPenalty, RlSettings

GROUP, LR = 8, 0.1
PASSES = {True: 0.1, False: 0.9}  # by being stuck


def breaking_share(settings, *, dropped, steps=600, seed=0):
    """P(break | stuck) and P(break | not stuck) after training; both begin at 0.1."""
    rng = np.random.default_rng(seed)
    logits = {True: np.log(1 / 9), False: np.log(1 / 9)}
    share = lambda stuck: 1 / (1 + np.exp(-logits[stuck]))
    for step in range(steps):
        rows = []
        for _ in range(GROUP):
            stuck = bool(rng.random() < 0.5)
            broke = bool(rng.random() < share(stuck))
            solved = not broke and rng.random() < PASSES[stuck]
            counters = {"malformed_calls": float(broke), "malformed_turns": 0.0}
            rows.append((stuck, broke, Rollout("r", "t", 0, [], {"outcome": float(solved)}, counters)))
        kept = [row for row in rows if not (dropped and row[1])]
        if not kept:
            continue
        parts = mix_rewards(
            [measure_components(RewardInput(rollout, settings)) for _, _, rollout in kept], mix_at(step, settings)
        )
        for (stuck, broke, _), advantage in zip(kept, advantages([sum(part.values()) for part in parts]), strict=True):
            logits[stuck] += LR * advantage * (broke - share(stuck))
    return share(True), share(False)


def settings_of(broken_calls):
    rewards = {"weights": {"unfinished_todos": 0.0, "untested_edit": 0.0, "broken_calls": broken_calls}}
    return RlSettings.model_validate({"length": LengthPenalty(scale=0.0), "rewards": rewards})


@pytest.mark.parametrize("seed", range(3))
def test_dropping_broken_rollouts_teaches_to_break_calls_where_the_task_is_hard(seed):
    stuck, free = breaking_share(settings_of(0.1), dropped=True, seed=seed)
    assert stuck > 0.6 and free < 0.1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_broken_rollouts_that_stay_teach_to_go_on(weight, seed):
    stuck, free = breaking_share(settings_of(weight), dropped=False, seed=seed)
    assert stuck < 0.1 and free < 0.02
