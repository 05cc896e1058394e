"""A rollout with a number that is not finite is named and costs its group; the rest of the batch is trained as if the group had not been there."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from etude.learn.train.importance_settings import ImportanceSettings, PpoClipSettings
from etude.learn.train.importance_weights import OPTIONS, ImportanceStatistics, importance_weights
from etude.learn.train.loop import TrainingDiverged
from etude.learn.train.policy_step import PolicyTrainer, broken_rollouts
from etude.learn.train.scores import Mismatch
from etude.learn.train.settings import PolicyStepSettings


def trained(model, rollouts, advantages, **settings):
    """A step on a copy of the model: its weights after it, the figures, and the lines about broken rollouts."""
    model = copy.deepcopy(model)
    trainer = PolicyTrainer(model, None, PolicyStepSettings.model_validate({"batch_tokens": 64} | settings))
    figures = trainer.update(rollouts, advantages, trainer.score(rollouts))
    return model.state_dict(), figures, trainer.broken


def equal(a, b) -> bool:
    return all(torch.equal(tensor, b[name]) for name, tensor in a.items())


def break_logprob(rollouts, value):
    segment = rollouts[5].segments[0]
    segment.logprobs[np.flatnonzero(segment.sampled)[1]] = value


@pytest.mark.sample(6)
@pytest.mark.parametrize("graph_tokens", [0, 100_000])
@pytest.mark.parametrize("what", ["advantage nan", "advantage inf", "advantage -inf", "logprob nan", "logprob inf"])
def test_a_broken_rollout_costs_its_group_alone(model, make, what, graph_tokens):
    kind, _, value = what.partition(" ")
    rollouts = make.rollouts(model, 12)  # groups of four
    advantages = [0.5, -0.25, 1.0, 0.0, -1.0, 0.1, 0.3, 0.2, -0.7, 0.9, 0.4, -0.2]
    rest = [*range(4), *range(8, 12)]
    wanted, plain, none = trained(
        model, [rollouts[i] for i in rest], [advantages[i] for i in rest], graph_tokens=graph_tokens
    )
    if kind == "advantage":
        advantages[5] = float(value)
    else:
        break_logprob(rollouts, float(value))
    found, figures, lines = trained(model, rollouts, advantages, graph_tokens=graph_tokens)
    assert equal(found, wanted) and not equal(found, model.state_dict())
    assert figures["skipped"] == 0 and figures["dropped_groups"] == 1 and "dropped_groups" not in plain and none == []
    assert math.isfinite(figures["k3"]) and figures["sampled_tokens"] == plain["sampled_tokens"]
    (line,) = lines
    assert line.startswith("rollout 5 (task t): ") and value in line and "its group 1 is left out of the step" in line


def test_a_batch_of_broken_groups_is_skipped_and_too_many_in_a_row_stop_with_the_last_name(model, make):
    rollouts = make.rollouts(model, 4)
    trainer = PolicyTrainer(model, None, PolicyStepSettings.model_validate({"bad_steps_limit": 2}))
    before = copy.deepcopy(model.state_dict())
    advantages = [math.nan, 1.0, 0.0, -1.0]
    assert trainer.update(rollouts, advantages, trainer.score(rollouts))["skipped"] == 1
    assert trainer.steps == 1 and equal(before, model.state_dict())
    with pytest.raises(TrainingDiverged, match="2 policy steps in a row .* rollout 0 .task t.: its advantage is nan"):
        trainer.update(rollouts, advantages, trainer.score(rollouts))


@pytest.mark.parametrize("kind", sorted(OPTIONS))
@pytest.mark.parametrize("sampler", [-200.0, -1000.0, -math.inf])
@pytest.mark.parametrize("advantage", [0.0, 1.0, -1.0])
def test_a_token_that_the_sampler_gave_no_chance_has_a_finite_weight(kind, sampler, advantage):
    unbounded = [ImportanceSettings(kind="ppo_clip", ppo_clip=PpoClipSettings(dual=None))] if kind == "ppo_clip" else []
    for settings in (ImportanceSettings(kind=kind), *unbounded):
        weights = importance_weights(
            torch.tensor([-1.0, -1.0]), torch.tensor([sampler, -1.0]), torch.tensor([advantage, 0.5]), settings
        )
        assert (weights * torch.tensor([advantage, 0.5])).isfinite().all() and weights[1] == 1
        statistics = ImportanceStatistics()
        statistics.add(weights, torch.tensor([-1.0, -1.0]), torch.tensor([sampler, -1.0]))
        assert math.isfinite(statistics.figures()["trust_weight"])


@pytest.mark.parametrize("kind", sorted(OPTIONS))
def test_a_batch_with_such_a_token_of_advantage_0_is_trained(model, make, kind):
    rollouts = make.rollouts(model, 8)
    break_logprob(rollouts, -math.inf)
    advantages = [1.0, -1.0, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0]
    state, figures, lines = trained(model, rollouts, advantages, trust=ImportanceSettings(kind=kind))
    assert figures["skipped"] == 0 and lines == [] and not equal(state, model.state_dict())
    assert all(tensor.isfinite().all() for tensor in state.values())


@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_ppo_without_a_dual_clip_drops_a_token_that_the_sampler_gave_no_chance(model, make, advantage):
    settings = ImportanceSettings(kind="ppo_clip", ppo_clip=PpoClipSettings(dual=None))
    now, sampler = torch.tensor([-1.0, -1.0]), torch.tensor([-math.inf, -1.0])
    assert importance_weights(now, sampler, torch.full((2,), advantage), settings).tolist() == [0.0, 1.0]
    rollouts = make.rollouts(model, 8)
    break_logprob(rollouts, -math.inf)
    state, figures, lines = trained(model, rollouts, [1.0, -1.0, 0.5, -0.5, 0.0, advantage, 0.0, 0.0], trust=settings)
    assert figures["skipped"] == 0 and figures["grad_norm"] < 1e3 and lines == []
    assert all(tensor.isfinite().all() for tensor in state.values())


def test_a_token_that_sampler_and_trainer_give_no_chance_breaks_its_rollout(model, make):
    rollouts = make.rollouts(model, 8)
    current = [[segment.logprobs.copy() for segment in rollout.segments] for rollout in rollouts]
    place = np.flatnonzero(rollouts[5].segments[0].sampled)[1]
    current[5][0][place] = -math.inf
    assert broken_rollouts(rollouts, [0.0] * 8, current) == {}
    break_logprob(rollouts, -math.inf)
    assert broken_rollouts(rollouts, [0.0] * 8, current) == {
        5: "1 of its tokens have a logprob of -inf by the sampler and the trainer"
    }


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 1000])
def test_the_percentile_is_that_of_the_sorted_differences(count):
    values = torch.randn(count, generator=torch.Generator().manual_seed(count))
    ordered = sorted(values.double().abs().tolist())
    at = 0.99 * (count - 1)
    low, part = int(at), at - int(at)
    wanted = ordered[low] + part * (ordered[min(low + 1, count - 1)] - ordered[low])
    assert Mismatch.of([values], [torch.zeros(count)]).p99 == pytest.approx(wanted, rel=1e-12)


def test_a_token_of_probability_0_makes_k3_infinite_and_a_nan_makes_it_nan():
    assert Mismatch.of([torch.tensor([-1.0])], [torch.tensor([-math.inf])]).k3 == math.inf
    assert math.isnan(Mismatch.of([torch.tensor([-1.0])], [torch.tensor([math.nan])]).k3)


@pytest.mark.nightly
def test_a_step_may_have_more_sampled_tokens_than_torch_sorts():
    count = 2**24 + 1
    found = Mismatch.of([torch.full((count,), 0.25)], [torch.zeros(count)])
    assert found.p99 == pytest.approx(0.25)
