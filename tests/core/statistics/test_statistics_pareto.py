"""Who is on the front, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.interval import weighted_mean
from etude.core.statistics.pareto import PolicySamples, front, on_front

points = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8)


@given(points)
def test_the_front_is_who_no_one_beats(drawn: list[tuple[int, int]]) -> None:
    brute = [not any(s >= score and c <= cost and (s > score or c < cost) for s, c in drawn) for score, cost in drawn]
    scores, costs = np.array(drawn, float).T
    assert on_front(scores / 4, costs * 1000).tolist() == brute


def measured(score: float, cost: float, noise: np.ndarray) -> PolicySamples:
    return PolicySamples({"": np.clip(score + noise, 0, 1)}, {"": cost * (1 + noise)})


def test_a_clear_point_is_always_on_the_front_a_beaten_one_never_and_a_close_one_sometimes() -> None:
    rng = np.random.default_rng(0)
    noises = [rng.normal(0, 0.1, 40) for _ in range(4)]
    drawn = {
        name: measured(score, cost, noise)
        for (name, score, cost), noise in zip(
            [("cheap", 0.3, 1), ("good", 0.7, 3), ("close", 0.69, 3.2), ("beaten", 0.2, 5)], noises, strict=True
        )
    }
    found = front(drawn, resamples=600, seed=0)
    assert found["cheap"].share == 1 and found["beaten"].share == 0
    assert found["good"].share > 0.5 and 0.02 < found["close"].share < 0.98
    for name, point in found.items():
        assert point.score.low <= point.score.value <= point.score.high
        assert point.cost.value == pytest.approx(weighted_mean(drawn[name].costs, {"": 1.0}))


def test_a_difference_common_to_all_tasks_is_certain_however_much_tasks_differ() -> None:
    """Resamples draw the same tasks for all policies: difficulty does not blur who is ahead."""
    hard = np.random.default_rng(1).random(30)
    ahead = {name: PolicySamples({"": 0.5 * hard + lift}, {"": 1 + hard}) for name, lift in (("a", 0.0), ("b", 0.02))}
    found = front(ahead, resamples=300, seed=0)
    assert (found["a"].share, found["b"].share) == (0, 1)
    assert found["a"].score.high > found["b"].score.low


def test_equal_policies_share_the_front_and_seeds_repeat() -> None:
    noise = np.random.default_rng(2).normal(0, 0.2, 20)
    twins = {name: measured(0.5, 2, noise) for name in "ab"}
    found = front(twins, resamples=200, seed=3)
    assert found["a"] == found["b"] and found["a"].share == 1
    assert found == front(twins, resamples=200, seed=3)
    assert front({}, resamples=200, seed=3) == {}


def test_points_of_other_tasks_are_refused() -> None:
    a, b = measured(0.5, 1, np.zeros(5)), measured(0.5, 1, np.zeros(6))
    with pytest.raises(ValueError, match="same tasks of every level"):
        front({"a": a, "b": b}, resamples=200, seed=0)
