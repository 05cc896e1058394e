"""Paired comparisons: exact where they can be, right at their level, and together under Holm."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.pairs import compare, holm, matrix, sign_flip

ONE = {"": 1.0}


@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(-4, 4), min_size=1, max_size=3), min_size=1))
def test_sign_flip_p_is_the_share_of_all_sign_patterns_to_1e_9(drawn: dict[str, list[int]]) -> None:
    weights = {level: i + 1 for i, level in enumerate(drawn)}
    parts = [Fraction(weights[level] * d, len(ds)) for level, ds in drawn.items() for d in ds]
    patterns = [
        abs(sum(s * p for s, p in zip(signs, parts, strict=True))) for signs in product((1, -1), repeat=len(parts))
    ]
    exact = Fraction(sum(value >= abs(sum(parts)) for value in patterns), len(patterns))
    changes = {level: np.array(ds) / 4 for level, ds in drawn.items()}
    assert abs(sign_flip(changes, {k: float(w) for k, w in weights.items()}, seed=0) - exact) < 1e-9


def test_many_tasks_are_sampled_close_to_the_exact_p() -> None:
    """22 differences of one sign pattern: P(at least 17 of 22 heads or tails) by the binomial, 0.0169."""
    changes = np.array([1.0] * 17 + [-1.0] * 5)
    exact = 2 * sum(np.prod([Fraction(22 - i, i + 1) for i in range(k)]) for k in range(17, 23)) / 2**22
    assert sign_flip({"": changes}, ONE, seed=3) == pytest.approx(float(exact), abs=0.004)


def test_alike_policies_are_called_different_at_most_as_often_as_alpha() -> None:
    rng = np.random.default_rng(4)
    trials, called = 400, 0
    for _ in range(trials):
        difficulty = rng.random(15)
        a, b = ((rng.random((15, 2)) < difficulty[:, None]).mean(axis=1) for _ in range(2))
        called += sign_flip({"": b - a}, ONE, seed=0) <= 0.05
    assert called <= 0.05 * trials + 3 * (0.05 * 0.95 * trials) ** 0.5  # 3 standard deviations of a binomial


def test_equal_policies_give_p_1_and_no_changed_task() -> None:
    same = {"": np.linspace(0, 1, 30)}
    found = compare(same, same, resamples=200, seed=0)
    assert (found.p, found.tasks, found.tasks_changed, found.points.value) == (1.0, 30, 0, 0.0)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_step_down_by_the_definition(p: list[float]) -> None:
    """Rejected at alpha exactly if all smaller ones pass their own thresholds alpha / (m - i)."""
    adjusted = holm(p)
    order = sorted(range(len(p)), key=lambda i: p[i])
    for alpha in (0.01, 0.05, 0.2, 0.9):
        rejected: set[int] = set()
        for i, place in enumerate(order):
            if p[place] * (len(p) - i) > alpha:
                break
            rejected.add(place)
        assert {i for i, value in enumerate(adjusted) if value <= alpha} == rejected
    assert all(a >= b for a, b in zip(adjusted, p, strict=True))


def test_a_matrix_has_every_pair_once_and_corrects_over_them() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(40) * 0.5
    policies = {
        name: {"": base + shift + rng.normal(0, 0.05, 40)} for name, shift in (("a", 0), ("b", 0.01), ("c", 0.2))
    }
    found = matrix(policies, resamples=400, seed=0)
    assert list(found) == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [d.p_holm for d in found.values()] == holm([d.p for d in found.values()])
    assert found["a", "c"].points.low > 0.05 and found["a", "c"].p_holm < 0.001
    assert found["a", "c"].points.value == pytest.approx(0.2, abs=0.05)


def test_a_comparison_is_the_same_whichever_side_comes_first() -> None:
    rng = np.random.default_rng(5)
    a, b = {"x": rng.random(9), "y": rng.random(4)}, {"x": rng.random(9), "y": rng.random(4)}
    one, other = (compare(*sides, resamples=300, seed=1) for sides in ((a, b), (b, a)))
    assert one.p == other.p
    assert (one.points.value, one.points.low) == pytest.approx((-other.points.value, -other.points.high))
