"""A line through points of several seeds: right slope, right width, and a refusal where nothing can be said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.regression import RegressionLine, TooFewPoints, fit, student_quantile

# Two-sided 95% quantiles as printed in any table of Student's distribution.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "quantile"), TABLE.items())
def test_the_quantile_is_that_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(freedom) == pytest.approx(quantile, abs=2e-3)


@given(st.floats(-5, 5), st.lists(st.floats(-10, 10), min_size=2, max_size=3))
def test_points_on_parallel_lines_give_their_slope_whatever_the_seeds_offsets(
    slope: float, offsets: list[float]
) -> None:
    x = [0.0, 1.0, 2.0, 4.0] * len(offsets)
    seeds = [number for number in range(len(offsets)) for _ in range(4)]
    found = fit(x, [offsets[s] + slope * a for a, s in zip(x, seeds, strict=True)], seeds)
    assert found.slope == pytest.approx(slope, abs=1e-6)
    assert found.high - found.low < 1e-6


def test_the_interval_holds_the_true_slope_in_95_of_100_draws() -> None:
    rng = np.random.default_rng(0)
    x, seeds = [0.0, 1.0, 2.0, 3.0] * 2, [0] * 4 + [1] * 4
    held = 0
    for _ in range(2000):
        y = [0.7 * a + 3 * s + e for a, s, e in zip(x, seeds, rng.normal(size=8), strict=True)]
        line = fit(x, y, seeds)
        held += line.low <= 0.7 <= line.high
    assert 0.935 < held / 2000 < 0.965


def test_an_interval_around_nothing_is_called_nothing() -> None:
    assert RegressionLine(-1.0, -2.0, 0.5, 0.0).verdict == "no relation found"
    assert RegressionLine(-1.0, -2.0, -0.5, 0.0).verdict == "y falls as x rises"
    assert RegressionLine(1.0, 0.5, 2.0, 0.0).verdict == "y rises with x"


@pytest.mark.parametrize(
    ("x", "seeds"), [([1.0, 2.0], [0, 0]), ([1.0, 1.0, 1.0, 1.0], [0, 0, 0, 0]), ([1.0, 2.0, 3.0], [0, 1, 2])]
)
def test_too_few_or_equal_points_are_refused(x: list[float], seeds: list[int]) -> None:
    with pytest.raises(TooFewPoints, match="points of"):
        fit(x, [0.0] * len(x), seeds)
