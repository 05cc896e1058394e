"""95% intervals hold the truth at least 95 times in 100: simulated benches whose truth is known, also near 0 and 100%."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from etude.core.statistics.best import best_of
from etude.core.statistics.bounded import average, difference, wilson
from etude.core.statistics.interval import Interval, stratified_mean
from etude.core.statistics.student import student_quantile

LEVELS = {"easy": (1.5, 2.0), "hard": (-1.0, 1.0)}  # level -> what it adds to an ability, its weight
HARDNESS = 2.0  # standard deviation of a task's difficulty, in logits


def truth(ability: float) -> float:
    """Mean rate over all tasks there could be, levels weighted, by summing over the normal density of difficulties."""
    z = np.linspace(-9, 9, 4001)
    density = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    return (
        sum(w * (density / (1 + np.exp(-(ability + shift + HARDNESS * z)))).sum() for shift, w in LEVELS.values()) / 3
    )


def benches(abilities: list[float], tasks: int, passes: int, trials: int) -> Iterator[list[dict[str, np.ndarray]]]:
    """Tables by level of each policy, tasks drawn again in every bench and shared by its policies."""
    rng = np.random.default_rng(tasks * 100 + passes)
    for _ in range(trials):
        hard = {level: rng.normal(0, HARDNESS, (tasks // 2, 1)) for level in LEVELS}
        yield [
            {
                level: (rng.random((tasks // 2, passes)) < 1 / (1 + np.exp(-(a + LEVELS[level][0] + h)))).astype(float)
                for level, h in hard.items()
            }
            for a in abilities
        ]


WEIGHTS = {level: weight for level, (_, weight) in LEVELS.items()}


def least_hits(trials: int) -> int:
    """What a binomial of 95% falls short of once in 10,000 times, by the exact sum."""
    total, hits = 0.0, 0
    while total < 1e-4:
        total += math.comb(trials, hits) * 0.95**hits * 0.05 ** (trials - hits)
        hits += 1
    return hits - 1


def covered(found: Interval, value: float) -> bool:
    return found.low - 1e-12 <= value <= found.high + 1e-12


CASES = [(0.0, 40, 4), (4.5, 40, 1), (7.0, 24, 4), (-4.0, 60, 2)]


def holds(ability: float, tasks: int, passes: int, trials: int) -> tuple[int, int]:
    """How often the interval of the average, and that of the difference to a policy slightly better, hold the truth."""
    mean, gap = truth(ability), truth(ability + 0.5) - truth(ability)
    hits = [0, 0]
    for trial, (one, other) in enumerate(benches([ability, ability + 0.5], tasks, passes, trials)):
        low, high = ({level: t.mean(axis=1) for level, t in tables.items()} for tables in (one, other))
        changes = {level: high[level] - low[level] for level in low}
        hits[0] += covered(average(low, WEIGHTS, resamples=200, seed=trial), mean)
        hits[1] += covered(difference(changes, WEIGHTS, resamples=200, seed=trial), gap)
    return hits[0], hits[1]


@pytest.mark.parametrize(("ability", "tasks", "passes"), CASES)
def test_intervals_hold_the_truth_at_their_nominal_rate(ability: float, tasks: int, passes: int) -> None:
    trials = 250
    assert min(holds(ability, tasks, passes, trials)) >= least_hits(trials)


@pytest.mark.nightly
@pytest.mark.parametrize("ability", [-5.0, 0.0, 2.0, 7.0])
@pytest.mark.parametrize("tasks", [12, 30, 100])
@pytest.mark.parametrize("passes", [1, 8])
def test_intervals_hold_the_truth_at_every_rate_and_size(ability: float, tasks: int, passes: int) -> None:
    """2,000 benches each: at least 93%, the nominal rate less what few tasks of a skewed kind may cost."""
    assert min(holds(ability, tasks, passes, 2000)) >= 0.93 * 2000


@pytest.mark.parametrize("ability", [0.0, 7.0])
def test_best_of_k_is_covered_too(ability: float) -> None:
    """Near 100% too, where sums of ones are not quite ones."""
    k, trials, hits = 4, 250, 0
    z = np.linspace(-9, 9, 4001)
    density = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    mean = (
        sum(
            w * (density * (1 - (1 - 1 / (1 + np.exp(-(ability + s + HARDNESS * z)))) ** k)).sum()
            for s, w in LEVELS.values()
        )
        / 3
    )
    for trial, (tables,) in enumerate(benches([ability], 40, 8, trials)):
        best = {level: best_of(table, k) for level, table in tables.items()}
        hits += covered(average(best, WEIGHTS, resamples=200, seed=trial), mean)
    assert hits >= least_hits(trials)


def test_the_bootstrap_alone_does_not_near_100_percent() -> None:
    """Why `average` exists. If this fails, `bounded.py` can go."""
    trials, hits, mean = 150, 0, truth(7.0)
    for trial, (tables,) in enumerate(benches([7.0], 24, 4, trials)):
        found = stratified_mean({k: t.mean(axis=1) for k, t in tables.items()}, WEIGHTS, resamples=200, seed=trial)
        hits += covered(found, mean)
    assert hits < 0.8 * trials


@pytest.mark.parametrize("tasks", [5, 30, 128])
def test_all_solved_is_not_certainty_and_none_differing_is_not_equality(tasks: int) -> None:
    whole = {"": np.ones(tasks)}
    perfect = average(whole, {"": 1.0}, resamples=200, seed=0)
    t = student_quantile(tasks - 1)
    assert (perfect.value, perfect.high) == (1.0, 1.0)
    assert perfect.low == pytest.approx(tasks / (tasks + t * t))  # Wilson's lower end for n of n
    same = difference({"": np.zeros(tasks)}, {"": 1.0}, resamples=200, seed=0)
    assert same.value == 0 and same.high == pytest.approx(1 - perfect.low) and same.low == pytest.approx(-same.high)


@pytest.mark.parametrize(("solved", "tasks"), [(1, 10), (5, 10), (29, 30), (64, 128)])
def test_single_passes_give_wilsons_interval_as_printed_in_textbooks(solved: int, tasks: int) -> None:
    """With one pass p (1 - p) / error^2 is N - 1, so the closed form of Wilson (1927) at N - 1 is the independent reference."""
    values = np.array([1.0] * solved + [0.0] * (tasks - solved))
    t, n, p = 1.96, tasks - 1, solved / tasks
    centre, half = (
        (p + t**2 / 2 / n) / (1 + t**2 / n),
        t * math.sqrt(p * (1 - p) / n + t**2 / 4 / n**2) / (1 + t**2 / n),
    )
    below, above = wilson({"": values}, {"": 1.0}, t)
    assert abs(p - below - (centre - half)) < 1e-9 and abs(p + above - (centre + half)) < 1e-9


def test_a_best_of_k_of_all_ones_is_as_unsure_as_ones() -> None:
    """best_of sums weights of tasks all solved to 1 - 1e-16: no score of its own, and no certainty."""
    best, whole = best_of(np.ones((30, 8)), 4), np.ones(30)
    one, other = (average({"": values}, {"": 1.0}, resamples=200, seed=0) for values in (best, whole))
    assert one.low == pytest.approx(other.low) and other.low < 0.9


def test_cutting_a_suite_into_levels_does_not_blur_what_its_tasks_show() -> None:
    """80 tasks, 19 better and none worse: in one level or in eight the interval lies above 0, and nearly the same."""
    change = np.zeros(80)
    change[::4][:19] = 0.4
    whole = difference({"": change}, {"": 1.0}, resamples=400, seed=0)
    eight = {str(i): change[10 * i : 10 * i + 10] for i in range(8)}
    cut = difference(eight, dict.fromkeys(eight, 1.0), resamples=400, seed=0)
    assert whole.low > 0 and cut.low > 0
    assert cut.high - cut.low == pytest.approx(whole.high - whole.low, rel=0.15)
    none = average({level: np.zeros(10) for level in eight}, dict.fromkeys(eight, 1.0), resamples=200, seed=0)
    assert none.high == pytest.approx(average({"": np.zeros(80)}, {"": 1.0}, resamples=200, seed=0).high, abs=0.003)


def test_intervals_stay_where_scores_can_be_and_mirror() -> None:
    values = {"a": np.array([0.0, 1.0, 1.0, 0.25]), "b": np.array([1.0])}
    weights = {"a": 2.0, "b": 1.0}
    one = average(values, weights, resamples=200, seed=0)
    other = average({k: 1 - v for k, v in values.items()}, weights, resamples=200, seed=0)
    assert 0 <= one.low <= one.value <= one.high <= 1
    assert (one.low, one.high) == pytest.approx((1 - other.high, 1 - other.low), abs=0.03)
