"""A lite suite orders policies as the whole does, within its cost, and does not boast."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.core.statistics.lite import NoLite, choose_lite
from etude.core.statistics.rank import spearman


def rates(policies: int, tasks: int, apart: float, seed: int) -> np.ndarray:
    """Chance of each policy at each task, (M, N): evenly spaced abilities, tasks of different difficulty and of different taste."""
    rng = np.random.default_rng(seed)
    ability = rng.permutation(np.linspace(-apart, apart, policies))[:, None]
    return 1 / (1 + np.exp(-(ability - rng.normal(0, 1.5, tasks) + rng.normal(0, 0.7, (policies, tasks)))))


def drawn(chances: np.ndarray, passes: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"p{i}": rng.binomial(1, row[:, None], (len(row), passes)).astype(float) for i, row in enumerate(chances)}


def test_a_lite_suite_keeps_the_ranking_at_a_fifth_of_the_cost() -> None:
    chances = rates(9, 100, 2.0, 3)
    costs = np.random.default_rng(0).lognormal(0, 0.8, 100)
    found = choose_lite(drawn(chances, 4, 1), costs, seed=1)
    assert found.cost_share == pytest.approx(costs[list(found.tasks)].sum() / costs.sum()) and found.cost_share <= 0.2
    assert found.reached >= 0.9 and found.held_out_passes is not None and found.held_out_policies is not None
    assert spearman(chances[:, list(found.tasks)].mean(axis=1), chances.mean(axis=1)) >= 0.9


def test_what_it_says_it_reached_is_what_fresh_passes_then_show() -> None:
    """Over 25 benches: the held-out figure against attempts that nothing of the choice has seen."""
    claimed, shown = [], []
    for seed in range(25):
        chances = rates(6, 60, 1.2, seed)
        found = choose_lite(drawn(chances, 4, 100 + seed), np.ones(60), least=-1, seed=seed, rounds=10)
        fresh = drawn(chances, 2, 200 + seed)
        lite = np.array([table[list(found.tasks)].mean() for table in fresh.values()])
        claimed.append(found.reached)
        shown.append(spearman(np.round(lite, 9), np.round(chances.mean(axis=1), 9)))
    assert np.mean(claimed) <= np.mean(shown) + 0.03


def test_chosen_tasks_beat_tasks_drawn_at_random() -> None:
    chosen, chance = [], []
    for seed in range(25):
        chances = rates(8, 100, 1.0, seed)
        found = choose_lite(drawn(chances, 4, seed), np.ones(100), least=-1, seed=seed, rounds=1)
        whole = chances.mean(axis=1)
        random = np.random.default_rng(seed).permutation(100)[: len(found.tasks)]
        chosen.append(spearman(chances[:, list(found.tasks)].mean(axis=1), whole))
        chance.append(spearman(chances[:, random].mean(axis=1), whole))
    assert np.mean(chosen) > np.mean(chance)


def test_the_order_to_keep_is_that_of_the_printed_average() -> None:
    """Ten heavy tasks order the policies one way, fifty light ones the other: the picked ones are of the heavy kind."""
    rng, ladder = np.random.default_rng(5), np.linspace(0.1, 0.9, 5)
    tables = {
        f"p{i}": (rng.random((60, 6)) < np.repeat([up, 1 - up], [10, 50])[:, None]).astype(float)
        for i, up in enumerate(ladder)
    }
    heavy = np.repeat([1.0, 0.001], [10, 50])
    found = choose_lite(tables, np.ones(60), weights=heavy, least=0.8, rounds=10)
    plain = choose_lite(tables, np.ones(60), least=0.8, rounds=10)
    assert sum(task < 10 for task in found.tasks) > len(found.tasks) / 2 and min(plain.tasks) >= 10
    with pytest.raises(ValueError, match="a weight above 0 for each task"):
        choose_lite(tables, np.ones(60), weights=np.ones(59))


def test_policies_that_are_alike_have_no_lite_suite_and_the_refusal_says_why() -> None:
    alike = drawn(np.full((6, 60), 0.5), 4, 0)
    with pytest.raises(
        NoLite, match=r"the whole suite agrees with itself at .* more passes, or policies further apart"
    ) as refusal:
        choose_lite(alike, np.ones(60))
    assert refusal.value.reached is not None and refusal.value.reached.reached < 0.6


def test_what_cannot_be_judged_is_refused() -> None:
    with pytest.raises(NoLite, match="one pass a task and 5 policies"):
        choose_lite(drawn(rates(5, 40, 2, 0), 1, 0), np.ones(40))
    with pytest.raises(NoLite, match="2 policies"):
        choose_lite(drawn(rates(2, 40, 2, 0), 4, 0), np.ones(40))
    with pytest.raises(NoLite, match="no task costs as little as 20%"):
        choose_lite(drawn(rates(4, 4, 2, 0), 4, 0), np.ones(4))
    with pytest.raises(ValueError, match="must not be negative"):
        choose_lite(drawn(rates(4, 10, 2, 0), 4, 0), np.zeros(10))
    with pytest.raises(ValueError, match="the same tasks"):
        choose_lite(drawn(rates(4, 10, 2, 0), 4, 0), np.ones(9))


def test_one_pass_is_judged_on_policies_that_had_no_part_in_the_choice() -> None:
    found = choose_lite(drawn(rates(12, 200, 2.5, 0), 1, 0), np.ones(200), least=0.5, rounds=10)
    assert found.held_out_passes is None and found.whole_itself is None
    assert found.reached == found.held_out_policies


@settings(max_examples=20)
@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_the_cost_is_never_passed_and_a_seed_repeats(seed: int, share: float) -> None:
    costs = np.random.default_rng(seed).lognormal(0, 1, 25)
    tables = drawn(rates(4, 25, 1.5, seed), 2, seed)
    try:
        found = choose_lite(tables, costs, share=share, least=-1, seed=seed, rounds=2)
    except NoLite as refusal:
        assert "no task costs as little" in str(refusal) and costs.min() > share * costs.sum()
        return
    assert 0 < found.cost_share <= share * (1 + 1e-9)
    assert len(set(found.tasks)) == len(found.tasks)
    assert found == choose_lite(tables, costs, share=share, least=-1, seed=seed, rounds=2)
