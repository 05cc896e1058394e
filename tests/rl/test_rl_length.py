"""The length penalty is the formula of the report, with its limits; missing counters are not free."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.rewards.library import QUANTITIES, effort, penalty
from etude.rl.settings import EffortWeights, LengthPenalty

ks = st.floats(0.01, 10)
qs = st.floats(0, 4)
xs = st.floats(0, 1000)


@given(k=ks, q=qs)
def test_starts_at_zero_with_slope_one(k, q):
    settings = LengthPenalty(k=k, q=q)
    assert penalty(0.0, settings) == 0.0
    assert penalty(1e-7, settings) / 1e-7 == pytest.approx(1.0, rel=1e-5)


@given(k=ks, q=st.floats(0, 4).filter(lambda q: abs(q - 1) > 1e-3), x=st.floats(0.01, 1000))
def test_equals_the_plain_formula(k, q, x):
    plain = ((1 + k * x) ** (1 - q) - 1) / (k * (1 - q))
    assert penalty(x, LengthPenalty(k=k, q=q)) == pytest.approx(plain, rel=1e-9)


@given(k=ks, q=qs, x=xs, y=xs)
def test_is_increasing_and_concave(k, q, x, y):
    settings = LengthPenalty(k=k, q=q)
    low, high = penalty(min(x, y), settings), penalty(max(x, y), settings)
    assert low <= high
    assert penalty((x + y) / 2, settings) >= (low + high) / 2 - 1e-9 * (1 + high)


@given(k=ks, x=xs, sign=st.sampled_from([-1, 1]))
def test_goes_to_the_logarithm_as_q_goes_to_one(k, x, sign):
    limit = math.log1p(k * x) / k
    assert penalty(x, LengthPenalty(k=k, q=1.0)) == pytest.approx(limit)
    assert penalty(x, LengthPenalty(k=k, q=1.0 + sign * 1e-12)) == pytest.approx(limit, rel=1e-9)


def test_is_linear_at_q_zero_and_bounded_above_q_one():
    assert penalty(37.0, LengthPenalty(k=0.3, q=0.0)) == pytest.approx(37.0)
    assert penalty(1e12, LengthPenalty(k=0.5, q=2.0)) == pytest.approx(1 / (0.5 * 1), rel=1e-6)


def test_effort_is_the_weighted_sum_of_the_six_quantities():
    weights = EffortWeights(**{name: 2.0**i for i, name in enumerate(QUANTITIES)})
    for i, name in enumerate(QUANTITIES):
        counters = dict.fromkeys(QUANTITIES, 0.0) | {name: 3.0}
        assert effort(counters, weights) == 3.0 * 2.0**i
    with pytest.raises(ValueError, match="no counter turns"):
        effort({name: 1.0 for name in QUANTITIES if name != "turns"}, weights)
