"""The arithmetic behind every claim."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.bench.statistics import best_of, bootstrap, paired, powers_of_two

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
        interval = bootstrap(scores.mean(axis=1), resamples=400, seed=trial)
        hits += interval.low <= 0.5 <= interval.high
    assert 0.88 <= hits / 200 <= 1.0


def test_clusters_widen_the_interval_compared_with_independent_attempts():
    hard_or_easy = np.repeat([[0.0] * 8, [1.0] * 8], 20, axis=0)
    clustered = bootstrap(hard_or_easy.mean(axis=1), resamples=1000, seed=0)
    independent = bootstrap(hard_or_easy.reshape(-1), resamples=1000, seed=0)
    assert clustered.high - clustered.low > 2 * (independent.high - independent.low)


def test_pairing_cancels_the_difficulty_of_tasks():
    rng = np.random.default_rng(2)
    difficulty = rng.random(80)
    before = np.clip(difficulty[:, None] + rng.normal(0, 0.01, (80, 4)), 0, 1) * 0.8
    after = before + 0.1
    lift = paired(before, after, resamples=1000, seed=0)
    assert lift.value == pytest.approx(0.1)
    assert lift.high - lift.low < 1e-6
    with pytest.raises(ValueError, match="same tasks"):
        paired(before, after[1:], resamples=200, seed=0)
