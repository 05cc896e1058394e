"""Draft layers that keep up with the policy: they learn, every number of ranks the same, and the trunk never shows it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from etude.learn.model.init import with_drafts
from etude.learn.train.balance import rows_to_train
from etude.learn.train.fresh_drafts import FreshDrafts
from etude.learn.train.gloo_ranks import GlooRanks, Rendezvous
from etude.learn.train.mtp_settings import FreshDraftsSettings
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.ranks import ALONE, Ranks
from etude.learn.train.self_distillation import DraftLearner
from etude.learn.train.settings import OptimizerSettings, PolicyStepSettings
from etude.learn.weights.state import state_digest

UPDATE = PolicyStepSettings(warmup_steps=0, lr=1e-3, batch_tokens=64)
ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 0.3, -0.3, 0.2, -0.2]


@pytest.fixture
def drafted(model):
    return with_drafts(model, 2, seed=1)


def trunk(model: Any) -> str:
    return state_digest({name: t for name, t in model.state_dict().items() if not name.startswith("mtp.")})


def policy_steps(
    model: Any, rollouts: list, count: int, drafts: FreshDrafts | None, first: int = 0
) -> list[dict[str, float]]:
    trainer = PolicyTrainer(model, None, UPDATE)
    result = []
    for step in range(first + 1, first + count + 1):
        figures = trainer.update(rollouts, ADVANTAGES, trainer.score(rollouts))
        result.append(figures | (drafts.after(step, rollouts) if drafts else {}))
    return result


def test_the_trunk_is_bit_for_bit_that_of_a_run_without_drafts(model, drafted, make):
    rollouts = make.rollouts(make.model(seed=1, family=model.config.family), 8)
    start = drafted.mtp.state_dict()
    before = {name: tensor.clone() for name, tensor in start.items()}
    with_lessons = policy_steps(drafted, rollouts, 3, FreshDrafts(drafted, FreshDraftsSettings(every=1), UPDATE))
    plain = policy_steps(model, rollouts, 3, None)
    assert trunk(drafted) == trunk(model)
    for one, other in zip(with_lessons, plain, strict=True):
        assert {name: one[name] for name in other} == other, "not a figure of the policy step differs"
    assert not any(torch.equal(tensor, start[name]) for name, tensor in before.items() if tensor.dim() > 1)


@pytest.mark.sample(1)
def test_lessons_bring_acceptance_up_and_the_figures_say_so(model, make):
    drafted = with_drafts(model, 1, seed=1)
    rollouts = make.rollouts(model, 8)
    drafts = FreshDrafts(drafted, FreshDraftsSettings(every=1), UPDATE)
    result = [drafts.after(step, rollouts) for step in range(1, 31)]
    assert result[-1]["draft_loss"] < 0.7 * result[0]["draft_loss"]
    assert result[-1]["draft_acceptance_1"] > result[0]["draft_acceptance_1"] + 0.05
    for one, after in zip(result, result[1:], strict=False):
        assert after["draft_acceptance_1"] == one["draft_acceptance_1_taught"], (
            "the trunk did not move between these lessons"
        )
    assert all(one["draft_skipped"] == 0.0 for one in result)


def test_passes_are_so_many_optimizer_steps(drafted, make):
    rollouts = make.rollouts(drafted, 4)
    twice = copy.deepcopy(drafted)
    one = FreshDrafts(drafted, FreshDraftsSettings(every=1), UPDATE)
    one.after(1, rollouts), one.after(2, rollouts)
    FreshDrafts(twice, FreshDraftsSettings(every=1, passes=2), UPDATE).after(1, rollouts)
    assert state_digest(twice.state_dict()) == state_digest(drafted.state_dict())


def test_only_every_nth_step_is_a_lesson(drafted, make):
    rollouts = make.rollouts(drafted, 2)
    drafts = FreshDrafts(drafted, FreshDraftsSettings(every=3, measured_tokens=0), UPDATE)
    assert [bool(drafts.after(step, rollouts)) for step in range(1, 7)] == [False, False, True, False, False, True]
    assert set(drafts.after(3, rollouts)) == {"draft_loss", "draft_skipped"}


def test_a_batch_without_sampled_tokens_or_without_room_for_a_draft_teaches_what_there_is(drafted, make):
    (rollout,) = make.rollouts(drafted, 1)
    drafts = FreshDrafts(drafted, FreshDraftsSettings(every=1), UPDATE)
    short = make.segment(drafted, [1, 2, 3], [False, False, True])
    assert "draft_acceptance_1" not in drafts.after(1, [type(rollout)("a", "t", 0, [short])])
    short.sampled[:] = False
    assert drafts.after(1, [type(rollout)("a", "t", 0, [short])]) == {}


def test_the_loss_of_a_lesson_is_that_of_all_its_tokens_at_once(drafted, make):
    rollouts = make.rollouts(drafted, 6)
    wide = PolicyStepSettings(batch_tokens=100_000)
    drafts = FreshDrafts(drafted, FreshDraftsSettings(every=1), wide)
    (batch,) = drafts._batches(rollouts)
    assert len(batch.ids) == len(rows_to_train(rollouts))
    whole = float(DraftLearner(drafted, 0.0).loss(batch).detach())
    other = FreshDrafts(copy.deepcopy(drafted), FreshDraftsSettings(every=1), UPDATE)
    assert len(other._batches(rollouts)) > 1
    assert other.after(1, rollouts)["draft_loss"] == pytest.approx(whole, rel=1e-5)


def on(size: int, work: Callable[[Ranks], Any]) -> list[Any]:
    """What `work` gives on each of `size` ranks, which are threads."""
    if size == 1:
        return [work(ALONE)]
    meeting = Rendezvous("127.0.0.1")
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(GlooRanks(meeting.address, "127.0.0.1", rank, size, 60)), range(size)))


@pytest.mark.sample(1)
def test_two_and_three_ranks_teach_what_one_does(drafted, make):
    rollouts = make.rollouts(drafted, 7)

    def gradient(ranks: Ranks) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
        own, settings = copy.deepcopy(drafted), OptimizerSettings(clip_norm=1e9)
        drafts = FreshDrafts(own, FreshDraftsSettings(every=1, optimizer=settings), UPDATE, ranks)
        drafts._optimizers.step = drafts._optimizers.zero_grad = lambda: None
        result = drafts.after(1, rollouts)
        return {name: p.grad for name, p in own.mtp.named_parameters() if p.grad is not None}, result

    def lessons(ranks: Ranks) -> str:
        own = copy.deepcopy(drafted)
        drafts = FreshDrafts(own, FreshDraftsSettings(every=1), UPDATE, ranks)
        policy_steps(own, rollouts + rollouts[:1], 2, drafts)
        return state_digest(own.state_dict())

    ((alone, result),) = on(1, gradient)
    assert len(alone) > 10
    for size in (2, 3):
        for found, heard in on(size, gradient):
            assert found.keys() == alone.keys()
            for name, grad in alone.items():
                torch.testing.assert_close(found[name], grad, rtol=1e-4, atol=1e-7, msg=lambda m, n=name: f"{n}: {m}")
            assert heard == pytest.approx(result, rel=1e-4, abs=2e-3)  # an expert chosen by a hair may be another
        assert len(set(on(size, lessons))) == 1, "the ranks differ by a bit"


def test_a_restored_teacher_goes_on_to_the_same_bits(drafted, make):
    rollouts = make.rollouts(drafted, 4)
    settings = FreshDraftsSettings(every=1)
    drafts = FreshDrafts(drafted, settings, UPDATE)
    drafts.after(1, rollouts)
    other = copy.deepcopy(drafted)
    again = FreshDrafts(other, settings, UPDATE)
    again.load_state_dict(copy.deepcopy(drafts.state_dict()))
    drafts.after(2, rollouts), again.after(2, rollouts)
    assert state_digest(other.state_dict()) == state_digest(drafted.state_dict())


def test_a_gradient_that_is_not_finite_changes_nothing(drafted, make):
    rollouts = make.rollouts(drafted, 4)
    drafts = FreshDrafts(drafted, FreshDraftsSettings(every=1, measured_tokens=0), UPDATE)
    before = state_digest(drafted.state_dict())
    learn = drafts._learner.loss
    drafts._learner.loss = lambda batch: learn(batch) * np.inf
    assert drafts.after(1, rollouts)["draft_skipped"] == 1.0
    assert state_digest(drafted.state_dict()) == before
