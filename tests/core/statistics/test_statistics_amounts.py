"""Intervals of costs: wide enough for long tails, alike in any unit, never below 0."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.amounts import amount, change
from etude.core.statistics.interval import stratified_mean
from etude.core.statistics.student import student_quantile

ONE = {"": 1.0}
costs = st.lists(st.floats(0, 1e6), min_size=1, max_size=20)


@given(costs)
def test_an_interval_holds_its_mean_and_is_never_below_nothing(drawn: list[float]) -> None:
    found = amount({"": np.array(drawn)}, ONE, resamples=200, seed=0)
    assert found.value == pytest.approx(np.mean(drawn))
    assert 0 <= found.low <= found.value * (1 + 1e-9) and found.value <= found.high * (1 + 1e-9)


@given(st.floats(1e-6, 1e6))
def test_a_unit_is_only_a_unit(factor: float) -> None:
    values = {"a": np.array([3.0, 1.0, 9.0, 2.0]), "b": np.array([5.0, 8.0])}
    plain, scaled = (
        amount({k: f * v for k, v in values.items()}, {"a": 2, "b": 1}, resamples=200, seed=1) for f in (1.0, factor)
    )
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx(
        (factor * plain.value, factor * plain.low, factor * plain.high)
    )


def test_the_widening_is_students_on_the_log_of_the_mean_to_1e_9() -> None:
    """Whichever of the two reaches further, at either end."""
    values = np.array([1.0, 2.0, 2.0, 3.0, 40.0])
    found = amount({"": values}, ONE, resamples=400, seed=0)
    factor = math.exp(student_quantile(4) * values.std(ddof=1) / math.sqrt(5) / values.mean())
    bare = stratified_mean({"": values}, ONE, resamples=400, seed=0)
    assert abs(found.high - max(bare.high, values.mean() * factor)) < 1e-9 and found.high > bare.high
    assert abs(found.low - min(bare.low, values.mean() / factor)) < 1e-9


def test_a_level_of_one_task_is_taken_to_spread_as_the_others_do() -> None:
    rest = {"many": np.array([1.0, 2.0, 3.0, 4.0])}
    alone = amount(rest | {"one": np.array([10.0])}, {"many": 1, "one": 1}, resamples=200, seed=0)
    certain = stratified_mean(rest | {"one": np.array([10.0])}, {"many": 1, "one": 1}, resamples=200, seed=0)
    assert alone.high - alone.low > 3 * (certain.high - certain.low)


def test_lognormal_costs_are_held_more_often_than_by_the_bootstrap_alone() -> None:
    rng, trials, truth = np.random.default_rng(0), 250, math.exp((0.8**2 + 0.5**2) / 2)
    hits = np.zeros(2)
    for trial in range(trials):
        values = {"": np.exp(rng.normal(0, 0.8, (30, 1)) + rng.normal(0, 0.5, (30, 2))).mean(axis=1)}
        both = (f(values, ONE, resamples=200, seed=trial) for f in (amount, stratified_mean))
        hits += [found.low <= truth <= found.high for found in both]
    assert hits[0] > hits[1] and hits[0] >= 0.88 * trials


def test_a_negative_amount_is_refused() -> None:
    with pytest.raises(ValueError, match=r"never negative; there is -1"):
        amount({"": np.array([2.0, -1.0])}, ONE, resamples=200, seed=0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_a_change_without_bounds_is_at_least_as_wide_as_the_bootstrap_and_as_student(drawn: list[float]) -> None:
    values = np.array(drawn)
    found, plain = (f({"": values}, ONE, resamples=200, seed=0) for f in (change, stratified_mean))
    half = student_quantile(len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    assert found.low == pytest.approx(min(plain.low, values.mean() - half), abs=1e-6)
    assert found.high == pytest.approx(max(plain.high, values.mean() + half), abs=1e-6)


def test_of_one_task_alone_no_width_is_known() -> None:
    found = change({"": np.array([3.0])}, ONE, resamples=50, seed=0)
    assert (found.low, found.value, found.high) == (3.0, 3.0, 3.0)
