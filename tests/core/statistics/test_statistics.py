"""The arithmetic behind every claim."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.best import best_of, powers_of_two
from etude.core.statistics.interval import stratified_mean, weighted_mean
from etude.core.statistics.pairs import paired_differences

tables = st.integers(1, 7).flatmap(
    lambda k: st.lists(st.lists(st.floats(0, 1), min_size=k, max_size=k), min_size=1, max_size=5)
)


@given(tables)
def test_best_of_k_equals_the_mean_over_all_subsets(rows):
    scores = np.array(rows)
    for k in range(1, scores.shape[1] + 1):
        brute = [np.mean([max(c) for c in combinations(row, k)]) for row in rows]
        assert best_of(scores, k) == pytest.approx(brute)


def test_best_of_one_is_the_average_and_more_passes_never_hurt():
    scores = np.random.default_rng(0).random((20, 16))
    assert best_of(scores, 1) == pytest.approx(scores.mean(axis=1))
    values = [best_of(scores, k).mean() for k in powers_of_two(16)]
    assert values == sorted(values)


def test_best_of_more_than_the_passes_is_refused():
    with pytest.raises(ValueError, match="best-of-5 needs at least 5 passes"):
        best_of(np.zeros((3, 4)), 5)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for trial in range(200):
        difficulty = rng.beta(2, 2, size=60)
        scores = rng.random((60, 4)) < difficulty[:, None]
        interval = stratified_mean({"": scores.mean(axis=1)}, {"": 1.0}, resamples=400, seed=trial)
        hits += interval.low <= 0.5 <= interval.high
    assert 0.88 <= hits / 200 <= 1.0


def test_clusters_widen_the_interval_compared_with_independent_attempts():
    hard_or_easy = np.repeat([[0.0] * 8, [1.0] * 8], 20, axis=0)
    clustered = stratified_mean({"": hard_or_easy.mean(axis=1)}, {"": 1.0}, resamples=1000, seed=0)
    independent = stratified_mean({"": hard_or_easy.reshape(-1)}, {"": 1.0}, resamples=1000, seed=0)
    assert clustered.high - clustered.low > 2 * (independent.high - independent.low)


levels = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.1, 5)),
    min_size=1,
)


@given(levels, st.integers(0, 5), st.floats(0.5, 3))
def test_an_interval_holds_its_value_and_does_not_change_with_the_scale_of_weights(drawn, seed, factor):
    values = {level: np.array(found) for level, (found, _) in drawn.items()}
    weights = {level: weight for level, (_, weight) in drawn.items()}
    interval = stratified_mean(values, weights, resamples=200, seed=seed)
    scaled = stratified_mean(values, {k: factor * w for k, w in weights.items()}, resamples=200, seed=seed)
    assert interval.low - 1e-9 <= interval.high and 0 <= interval.value <= 1 + 1e-9
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((interval.value, interval.low, interval.high))
    lowest = sum(w * values[k].min() for k, w in weights.items()) / sum(weights.values())
    highest = sum(w * values[k].max() for k, w in weights.items()) / sum(weights.values())
    assert lowest - 1e-9 <= interval.low <= interval.high <= highest + 1e-9


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30), st.integers(1, 29))
def test_weights_by_size_give_the_plain_mean_and_a_constant_level_no_width(found, cut):
    cut = min(cut, len(found) - 1)
    parts = {"a": np.array(found[:cut]), "b": np.array(found[cut:])}
    assert weighted_mean(parts, {k: len(v) for k, v in parts.items()}) == pytest.approx(np.mean(found))
    still = stratified_mean({"a": np.full(5, 0.25), "b": np.full(9, 0.75)}, {"a": 1, "b": 3}, resamples=200, seed=0)
    assert (still.value, still.low, still.high) == pytest.approx((0.625, 0.625, 0.625))


def test_levels_asked_more_often_than_the_mix_do_not_move_the_average():
    """A hard level asked ten times too often: the plain mean is pulled down, the weighted one is not."""
    values = {"easy": np.full(10, 0.9), "hard": np.full(100, 0.1)}
    assert weighted_mean(values, {"easy": 9, "hard": 1}) == pytest.approx(0.82)
    assert np.concatenate(list(values.values())).mean() == pytest.approx(0.1727, abs=1e-3)


def test_stratified_intervals_cover_the_truth_in_small_levels():
    """Levels of 6, 10 and 24 tasks with their own difficulty: 95% intervals hold the truth in 90% to 99% of draws."""
    rng = np.random.default_rng(5)
    sizes, weights = {"a": 6, "b": 10, "c": 24}, {"a": 5.0, "b": 3.0, "c": 1.0}
    middle = {"a": 0.3, "b": 0.5, "c": 0.8}
    truth, hits, trials = sum(weights[k] * middle[k] for k in sizes) / 9, 0, 300
    for trial in range(trials):
        values = {k: np.clip(rng.normal(middle[k], 0.1, n), 0, 1) for k, n in sizes.items()}
        interval = stratified_mean(values, weights, resamples=300, seed=trial)
        hits += interval.low <= truth <= interval.high
    assert 0.88 <= hits / trials <= 0.99


def test_a_level_that_the_mix_does_not_know_is_named():
    with pytest.raises(ValueError, match="'new'"):
        weighted_mean({"new": np.ones(3)}, {"old": 1.0})
    with pytest.raises(ValueError, match="no task"):
        stratified_mean({}, {}, resamples=200, seed=0)


def test_pairing_cancels_the_difficulty_of_tasks():
    rng = np.random.default_rng(2)
    difficulty = rng.random(80)
    before = {"a": np.clip(difficulty + rng.normal(0, 0.01, 80), 0, 1) * 0.8}
    after = {"a": before["a"] + 0.1}
    lift = stratified_mean(paired_differences(before, after), {"a": 1.0}, resamples=1000, seed=0)
    assert lift.value == pytest.approx(0.1)
    assert lift.high - lift.low < 1e-6
    with pytest.raises(ValueError, match="same tasks"):
        paired_differences(before, {"a": after["a"][1:]})
