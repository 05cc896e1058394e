"""Rank correlation against plain fractions; halves of a suite agree as much as the policies really differ."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from etude.core.statistics.rank import NoRanking, spearman, split_half


def plain_spearman(a: list[int], b: list[int]) -> float:
    """By counting: a value's rank is how many are smaller, half of those equal, and a half."""

    def rank(values: list[int]) -> list[Fraction]:
        return [Fraction(sum(v < x for v in values)) + Fraction(sum(v == x for v in values) + 1, 2) for x in values]

    x, y = rank(a), rank(b)
    middle = Fraction(len(a) + 1, 2)
    together = sum((p - middle) * (q - middle) for p, q in zip(x, y, strict=True))
    spread = sum((p - middle) ** 2 for p in x) * sum((q - middle) ** 2 for q in y)
    return float(together) / math.sqrt(spread)


pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=2, max_size=12)


@given(pairs)
def test_spearman_agrees_with_counting_to_1e_9_ties_included(drawn: list[tuple[int, int]]) -> None:
    a, b = [x for x, _ in drawn], [y for _, y in drawn]
    assume(len(set(a)) > 1 and len(set(b)) > 1)
    assert abs(spearman(np.array(a), np.array(b)) - plain_spearman(a, b)) < 1e-9


@given(pairs)
def test_only_the_order_matters(drawn: list[tuple[int, int]]) -> None:
    a, b = np.array(drawn, float).T
    assume(len(set(a)) > 1 and len(set(b)) > 1)
    assert spearman(np.exp(a), b**3) == pytest.approx(spearman(a, b))
    assert spearman(-a, b) == pytest.approx(-spearman(a, b))


def test_what_gives_no_order_is_refused() -> None:
    with pytest.raises(NoRanking, match="all values of one side are equal"):
        spearman(np.ones(4), np.arange(4))
    with pytest.raises(ValueError, match="3 values against 4"):
        spearman(np.arange(3), np.arange(4))


def drawn_tables(ability: list[float], tasks: int, passes: int, seed: int) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    difficulty = rng.normal(size=tasks)
    return {
        f"p{i}": {"": (rng.random((tasks, passes)) < 1 / (1 + np.exp(difficulty[:, None] - a))).astype(float)}
        for i, a in enumerate(ability)
    }


def test_halves_agree_on_policies_that_differ_and_not_on_policies_that_are_alike() -> None:
    apart = split_half(drawn_tables([-2, -1, 0, 1, 2], 60, 4, 0), seed=0)
    alike = split_half(drawn_tables([0, 0, 0, 0, 0], 60, 4, 0), seed=0)
    assert apart.halves > 0.95 and apart.low > 0.85
    assert alike.halves < 0.5


def test_spearman_brown_foretells_how_two_whole_suites_agree() -> None:
    """Halves of 40 tasks stepped up to 40 tasks, against two fresh suites of 40 tasks each, over 60 benches."""
    ability = [-0.6, -0.3, 0.0, 0.3, 0.6, 0.9]
    foretold, seen = [], []
    for trial in range(60):
        one, other = (drawn_tables(ability, 40, 2, 2 * trial + side) for side in (0, 1))
        foretold.append(split_half(one, seed=trial, splits=40).whole)
        seen.append(spearman(*(np.array([t[""].mean() for t in side.values()]) for side in (one, other))))
    assert np.mean(foretold) == pytest.approx(np.mean(seen), abs=0.06)


def test_the_step_to_the_whole_is_spearmans_and_browns() -> None:
    found = split_half(drawn_tables([-1, 0, 1], 20, 2, 3), seed=1)
    assert found.whole == pytest.approx(2 * found.halves / (1 + found.halves))
    assert (found.policies, found.tasks) == (3, 20)


def test_a_suite_that_ties_all_policies_agrees_on_nothing() -> None:
    tied = split_half({name: {"": np.ones((10, 2))} for name in "abc"}, seed=0)
    assert tied.halves == tied.whole == 0


def test_halves_are_judged_by_the_average_that_is_printed() -> None:
    """A level that orders the policies, and one of chance: the order is as sound as the weights make it."""
    rng = np.random.default_rng(0)
    policies = {
        name: {"telling": np.full((10, 1), score), "chance": rng.random((10, 1))}
        for name, score in zip("abcd", (0.1, 0.2, 0.3, 0.4), strict=True)
    }
    telling, chance = (
        split_half(policies, {"telling": share, "chance": 1 - share}, seed=0) for share in (0.999, 0.001)
    )
    assert telling.halves == 1 and chance.halves < 0.7
    assert split_half({name: {"": own["chance"]} for name, own in policies.items()}, seed=0).halves < 0.7


def test_levels_of_one_task_stand_in_one_half_and_tip_no_order() -> None:
    policies = {
        name: {"a": np.full((7, 1), score), "b": np.ones((1, 1))}
        for name, score in zip("abc", (0.2, 0.5, 0.9), strict=True)
    }
    assert split_half(policies, {"a": 1.0, "b": 9.0}, seed=3).halves == 1


def test_two_policies_or_tables_of_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 policies and 2 tasks"):
        split_half({"a": {"": np.ones((5, 1))}, "b": {"": np.zeros((5, 1))}}, seed=0)
    with pytest.raises(ValueError, match="differ in length"):
        split_half({name: {"": np.ones((n, 1))} for name, n in zip("abc", (5, 4, 5), strict=True)}, seed=0)
