"""The weight of a token that other weights sampled: every option is 1 without disagreement, bounded, and as in its paper."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from etude.learn.train.importance_settings import ImportanceKind, ImportanceSettings, PpoClipSettings, TisSettings
from etude.learn.train.importance_weights import OPTIONS, ImportanceStatistics, importance_weights
from etude.learn.train.settings import PolicyStepSettings

KINDS: list[ImportanceKind] = sorted(OPTIONS)
logp = st.floats(-20.0, -1e-3)
tokens = st.lists(st.tuples(logp, logp, st.sampled_from([-1.5, -0.1, 0.0, 0.2, 1.0])), min_size=1, max_size=20)


def columns(rows: list[tuple[float, float, float]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    now, then, advantages = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    return now, then, advantages


@pytest.mark.parametrize("kind", KINDS)
@given(rows=tokens)
def test_where_trainer_and_sampler_agree_every_token_counts_once(kind: ImportanceKind, rows):
    now, _, advantages = columns(rows)
    assert torch.equal(importance_weights(now, now, advantages, ImportanceSettings(kind=kind)), torch.ones_like(now))


@pytest.mark.parametrize("kind", KINDS)
@given(rows=tokens)
def test_weights_are_the_ratio_or_less_of_it_and_bounded(kind: ImportanceKind, rows):
    now, then, advantages = columns(rows)
    settings = ImportanceSettings(kind=kind)
    found = importance_weights(now, then, advantages, settings)
    most = {"none": 1.0, "tis": 2.0, "ppo_clip": 3.0, "icepop": 5.0, "dppo_mask": 5.0}[kind]
    matters = advantages != 0
    assert bool((found >= 0).all()) and bool((found[matters] <= most + 1e-9).all())
    if kind != "none":
        assert bool((found <= (now - then).exp() * (1 + 1e-9)).all())
    assert not found.requires_grad


@given(rows=tokens, low=st.floats(0.05, 0.5), high=st.floats(0.05, 0.5))
def test_ppo_clip_is_the_gradient_of_the_textbook_surrogate(rows, low, high):
    now, then, advantages = columns(rows)
    now.requires_grad_()
    ratios = (now - then).exp()
    edges = torch.stack([(ratios - (1 - low)).abs(), (ratios - (1 + high)).abs()])
    if bool((edges < 1e-6).any()):
        return  # the surrogate has no gradient at its corners
    torch.minimum(ratios * advantages, ratios.clamp(1 - low, 1 + high) * advantages).sum().backward()
    assert now.grad is not None
    settings = ImportanceSettings(kind="ppo_clip", ppo_clip=PpoClipSettings(low=low, high=high, dual=None))
    torch.testing.assert_close(importance_weights(now, then, advantages, settings) * advantages, now.grad)


def test_the_dual_clip_bounds_what_a_token_counts_that_is_to_become_rarer():
    now, then = torch.tensor([-0.1, -0.1]), torch.tensor([-3.0, -3.0])
    found = importance_weights(now, then, torch.tensor([-1.0, 0.0]), ImportanceSettings(kind="ppo_clip"))
    assert found[0] == 0 and found[1] > 10


def test_icepop_drops_both_tails_whatever_the_advantage():
    ratios = torch.tensor([0.49, 0.51, 1.0, 4.9, 5.1])
    for advantage in (-1.0, 1.0):
        found = importance_weights(
            ratios.log(), torch.zeros(5), torch.full((5,), advantage), ImportanceSettings(kind="icepop")
        )
        assert found.tolist() == pytest.approx([0.0, 0.51, 1.0, 4.9, 0.0])


@given(now=st.floats(0.01, 0.99), then=st.floats(0.01, 0.99), advantage=st.sampled_from([-1.0, 1.0]))
def test_dppo_masks_by_how_far_a_probability_moved_the_way_it_is_pushed(now: float, then: float, advantage: float):
    moved = (now - then) * advantage
    if abs(moved - 0.2) < 1e-6:
        return
    found = importance_weights(
        torch.tensor([math.log(now)]).double(), torch.tensor([math.log(then)]).double(), torch.tensor([advantage]),
        ImportanceSettings(kind="dppo_mask"),
    )  # fmt: skip
    assert (found.item() == 0) == (moved > 0.2)


def test_a_rare_token_may_change_its_ratio_where_dppo_holds_and_ppo_does_not():
    now, then = torch.tensor([math.log(1e-3)]), torch.tensor([math.log(4e-4)])
    up = torch.tensor([1.0])
    assert importance_weights(now, then, up, ImportanceSettings(kind="dppo_mask")).item() == pytest.approx(2.5)
    assert importance_weights(now, then, up, ImportanceSettings(kind="ppo_clip")).item() == 0


def test_figures_say_how_much_was_dropped_and_cut():
    logprobs, sampler = torch.tensor([1.0, 3.0, 0.4, 9.0]).log(), torch.zeros(4)
    statistics = ImportanceStatistics()
    for kind in ("tis", "icepop"):
        settings = ImportanceSettings(kind=kind)
        statistics.add(importance_weights(logprobs, sampler, torch.ones(4), settings), logprobs, sampler)
    found = statistics.figures()
    assert found["trust_dropped"] == pytest.approx(2 / 8) and found["trust_cut"] == pytest.approx(2 / 8)
    assert found["trust_weight"] == pytest.approx((1 + 2 + 0.4 + 2 + 1 + 3) / 8)
    assert found["ratio_chi2"] == pytest.approx((4 + 0.36 + 64) / 4)
    assert ImportanceStatistics().figures() == {}


def test_numbers_of_an_option_that_is_not_chosen_are_refused_and_a_resolved_recipe_reads_back():
    with pytest.raises(ValidationError, match="trust.tis has numbers, but trust.kind is 'icepop'"):
        ImportanceSettings(kind="icepop", tis=TisSettings(cap=3.0))
    chosen = PolicyStepSettings(trust=ImportanceSettings(tis=TisSettings(cap=3.0)))
    assert PolicyStepSettings.model_validate(chosen.model_dump()) == chosen
