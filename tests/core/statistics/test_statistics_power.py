"""Student's distribution against closed forms; the detectable difference is really found four times in five."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.statistics.pairs import sign_flip
from etude.core.statistics.power import detectable, pass_share, tasks_needed
from etude.core.statistics.student import student_cdf


@given(st.floats(-30, 30))
def test_the_distribution_is_that_of_the_closed_forms_to_1e_9(t: float) -> None:
    """1, 2, 3 and 4 degrees of freedom have elementary distribution functions."""
    u = t / math.sqrt(3)
    exact = {
        1: 0.5 + math.atan(t) / math.pi,
        2: 0.5 + t / (2 * math.sqrt(2 + t * t)),
        3: 0.5 + (u / (1 + u * u) + math.atan(u)) / math.pi,
        4: 0.5 + 0.375 * t / math.sqrt(1 + t * t / 4) * (1 - t * t / (1 + t * t / 4) / 12),
    }
    for freedom, value in exact.items():
        assert abs(student_cdf(t, freedom) - value) < 1e-9


@given(st.floats(-5, 5), st.floats(-4, 4))
def test_a_shift_at_t_0_is_the_normal_distribution_and_mirrors(t: float, shift: float) -> None:
    assert abs(student_cdf(0.0, 7, shift) - 0.5 * math.erfc(shift / math.sqrt(2))) < 1e-9
    assert abs(student_cdf(t, 5, shift) + student_cdf(-t, 5, -shift) - 1) < 1e-9


def test_shifted_values_are_those_of_an_independent_sum() -> None:
    """P(T <= t) = Phi(-d) + 1/2 sum over j of Poisson terms and incomplete beta (Lenth 1989), here by plain integration."""
    t, freedom, shift = 2.1, 6, 1.3
    steps, most = 100_000, 40.0
    width, total = most / steps, 0.0
    constant = -math.lgamma(freedom / 2) - freedom / 2 * math.log(2)
    for i in range(steps):  # over the chi-square itself, midpoint rule
        v = (i + 0.5) * width
        density = math.exp((freedom / 2 - 1) * math.log(v) - v / 2 + constant)
        total += width * density * 0.5 * math.erfc((shift - t * math.sqrt(v / freedom)) / math.sqrt(2))
    assert student_cdf(t, freedom, shift) == pytest.approx(total, abs=1e-5)


def test_the_detectable_difference_of_a_textbook_case() -> None:
    """34 pairs are needed for a difference of half a standard deviation at power 0.8 (G*Power, and Cohen's tables)."""
    spread = np.random.default_rng(0).normal(size=50)
    spread = (spread - spread.mean()) / spread.std(ddof=1)
    assert tasks_needed(spread, 0.5) == 34
    at_34 = np.concatenate([np.full(17, 1.0), np.full(17, -1.0)])
    found = detectable(at_34 / at_34.std(ddof=1))
    assert found is not None and 0.49 < found.difference <= 0.5


def test_the_detectable_difference_is_found_by_the_sign_flip_test_as_often_as_it_says() -> None:
    rng = np.random.default_rng(6)
    spread = 0.3
    found = detectable(rng.normal(0, 1, 30))
    assert found is not None
    shift = found.difference / (found.error * math.sqrt(30)) * spread  # as if the spread were known
    trials = 150
    hits = sum(sign_flip({"": rng.normal(shift, spread, 30)}, {"": 1.0}, seed=i) <= 0.05 for i in range(trials))
    assert 0.8 - 3 * (0.16 / trials) ** 0.5 < hits / trials < 0.8 + 3 * (0.16 / trials) ** 0.5


@settings(max_examples=25)
@given(st.floats(0.05, 0.5), st.integers(2, 60))
def test_tasks_needed_and_detectable_are_each_others_inverse(wished: float, count: int) -> None:
    spread = np.random.default_rng(count).normal(size=count)
    needed = tasks_needed(spread, wished)
    assert needed is not None
    error = spread.std(ddof=1)

    def found_with(tasks: int) -> float:
        alternate = np.array([1.0, -1.0] * (tasks // 2) + [0.0] * (tasks % 2))
        scaled = alternate / alternate.std(ddof=1) * error
        result = detectable(scaled - scaled.mean())
        assert result is not None
        return result.difference

    assert found_with(needed) <= wished * (1 + 1e-9)
    assert needed <= 2 or found_with(needed - 1) > wished


def test_levels_are_judged_within_themselves_and_by_their_weights() -> None:
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 0.2, 25)
    apart = {"easy": noise + 0.5, "hard": noise - 0.5}
    found = detectable(apart, weights={"easy": 1.0, "hard": 1.0})
    pooled = detectable(np.concatenate(list(apart.values())))
    assert found is not None and pooled is not None
    assert found.error == pytest.approx(noise.std(ddof=1) / math.sqrt(50))
    assert (found.freedom, found.tasks) == (48, 50) and found.difference < pooled.difference / 2


def test_without_a_spread_nothing_is_promised() -> None:
    assert detectable(np.zeros(20)) is None
    assert tasks_needed(np.full(20, 0.1), 0.05) is None
    assert detectable({"a": np.array([0.5])}) is None
    with pytest.raises(ValueError, match="above 0, not -1"):
        tasks_needed(np.arange(3.0), -1)
    with pytest.raises(ValueError, match="between alpha and 1"):
        detectable(np.arange(3.0), power=0.01)


def test_the_part_of_the_spread_that_passes_would_take_away_is_found() -> None:
    """Two policies of equal difficulty by task differ by chance of the passes alone: nearly all of it; fixed scores: none."""
    rng = np.random.default_rng(8)
    chance = rng.random((2000, 1))
    before, after = ({"": (rng.random((2000, 4)) < chance).astype(float)} for _ in range(2))
    alike = pass_share(before, after)
    assert alike is not None and alike > 0.93
    still = pass_share({"": np.repeat(chance, 4, axis=1)}, {"": np.repeat(rng.random((2000, 1)), 4, axis=1)})
    assert still == pytest.approx(0.0)
    assert pass_share({"": np.ones((5, 1))}, {"": rng.random((5, 1))}) is None
