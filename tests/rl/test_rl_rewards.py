"""Each component is a pure number of a rollout; advantages are reward minus group mean and nothing else."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.metrics.counters import Counters
from etude.agent.metrics.todo import TodoList
from etude.core.trace.segment import Rollout
from etude.rl.advantage import advantages
from etude.rl.rewards.component import RewardInput
from etude.rl.rewards.library import COMPONENTS, QUANTITIES, effort, k1_sum, measure_components, penalty
from etude.rl.settings import LengthPenalty, RlSettings


@dataclass
class Piece:
    sampled: np.ndarray
    logprobs: np.ndarray


NONE = Counters(()).report(TodoList(), 0, (0, 0, 0))


def values(counters=(), info=(), rewards=(), k1=None, settings=None):
    rollout = Rollout("r", "t", 0, [], {"outcome": 1.0, **dict(rewards)}, {**NONE, **dict(counters)}, dict(info))
    return measure_components(RewardInput(rollout, settings or RlSettings(), k1))


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


def test_kl_has_a_value_only_where_a_reference_was_scored():
    assert values(k1=2.0)["kl"] == -2.0
    assert "kl" not in values()


def test_every_counter_that_a_component_needs_is_one_that_the_harness_counts():
    assert {name for one in COMPONENTS for name in one.needs} <= set(NONE)


@pytest.mark.parametrize(
    ("counters", "name", "value"),
    [
        ({"todos_unfinished": 2.0}, "unfinished_todos", -2.0),
        ({"edits_untested": 3.0}, "untested_edit", -1.0),
        ({"thought_comments": 4.0}, "thought_comments", -4.0),
        ({"calls": 10.0, "shell_for_tool": 4.0, "shell_calls": 9.0}, "shell_only", -0.4),
        ({"repeated_reads": 5.0}, "repeated_reads", -5.0),
        ({"malformed_calls": 2.0, "malformed_turns": 1.0}, "broken_calls", -3.0),
        ({"lint_delta": 3.0}, "added_lint", -3.0),
    ],
)
def test_behaviour_is_read_from_the_counters(counters, name, value):
    assert values(counters)[name] == pytest.approx(value)
    assert values()[name] == 0.0


def test_taking_lint_away_is_not_paid():
    assert values({"lint_delta": -7.0})["added_lint"] == 0.0


def test_a_component_without_its_counters_has_no_value():
    bare = Rollout("r", "t", 0, [], {"outcome": 0.0}, {})
    assert measure_components(RewardInput(bare, RlSettings())) == {"outcome": 0.0}


@given(st.sampled_from(QUANTITIES), st.floats(0.1, 1e5))
def test_more_effort_never_raises_the_reward(name, amount):
    assert values({name: amount})["length"] < values()["length"]


@given(st.floats(0, 1e4), st.floats(0.01, 5), st.floats(0, 3))
def test_length_is_the_published_penalty_times_the_factor_of_the_effort(turns, k, q):
    settings = RlSettings(length=LengthPenalty(k=k, q=q))
    plain = penalty(effort({**NONE, "turns": turns}, settings.length.weights), settings.length)
    for word, factor in (("low", 2.0), ("medium", 1.0), ("high", 0.5)):
        result = values({"turns": turns}, {"effort": word}, settings=settings)["length"]
        assert result == pytest.approx(-factor * plain)
    assert values({"turns": turns}, settings=settings)["length"] == pytest.approx(-plain)


@given(st.floats(0, 1e7))
def test_the_clock_takes_at_most_one_and_half_at_its_half(seconds):
    of = lambda s: values(info={"seconds": {"agent": s}})["wall_clock"]
    assert -1.0 <= of(seconds) <= 0.0
    assert of(300.0) == pytest.approx(-0.5)
    assert "wall_clock" not in values()


def test_what_was_recorded_with_the_attempt_is_taken_as_it_is():
    found = values(rewards={"quality": -3.0, "judge": 0.75})
    assert (found["quality"], found["judge"]) == (-3.0, 0.75)
    assert {"quality", "judge"}.isdisjoint(values())
