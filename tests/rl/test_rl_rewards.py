"""Rewards are named sums; advantages are reward minus group mean and nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.advantage import advantages
from etude.rl.length import QUANTITIES
from etude.rl.rewards import components, k1_sum
from etude.rl.settings import LengthPenalty, RlSettings


@dataclass
class Piece:
    sampled: np.ndarray
    logprobs: np.ndarray


counters = dict.fromkeys(QUANTITIES, 0.0)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=32))
def test_advantages_sum_to_zero_in_every_group(rewards):
    assert sum(advantages(rewards)) == pytest.approx(0.0, abs=1e-9)


def test_equally_good_rollouts_keep_their_small_differences_small():
    assert advantages([1.0, 1.0, 0.98, 0.98]) == pytest.approx([0.01, 0.01, -0.01, -0.01])


def test_k1_is_summed_over_the_chain_and_does_not_change_with_the_cut():
    rng = np.random.default_rng(3)
    sampled = rng.random(20) < 0.6
    logprobs = np.where(sampled, -rng.random(20), 0).astype(np.float32)
    reference = (logprobs - rng.random(20)).astype(np.float32)
    whole = k1_sum([Piece(sampled, logprobs)], [reference])
    cut = k1_sum([Piece(sampled[:7], logprobs[:7]), Piece(sampled[7:], logprobs[7:])], [reference[:7], reference[7:]])
    assert whole == pytest.approx(cut)
    assert whole == pytest.approx(sum(float(logprobs[t] - reference[t]) for t in range(20) if sampled[t]))


def test_drifting_from_the_reference_costs_reward():
    settings = RlSettings(kl_beta=0.1)
    parts = components(1.0, counters, 2.0, settings)
    assert parts["kl"] == pytest.approx(-0.2)
    assert sum(parts.values()) == pytest.approx(0.8)


def test_behaviour_is_paid_by_the_counter():
    settings = RlSettings(unfinished_todo=0.03, untested_edit=0.5, length=LengthPenalty(scale=0))
    parts = components(0.0, counters | {"todos_unfinished": 2, "edits_untested": 3}, 0.0, settings)
    assert parts["behaviour"] == pytest.approx(-0.56)
    assert components(0.0, counters, 0.0, settings)["behaviour"] == 0.0


def test_more_effort_never_raises_the_reward():
    settings = RlSettings()
    for name in QUANTITIES:
        more = components(1.0, counters | {name: 10.0}, 0.0, settings)
        assert more["length"] < components(1.0, counters, 0.0, settings)["length"]
