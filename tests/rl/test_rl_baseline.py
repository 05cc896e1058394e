"""Groups of one are held against what their category earned before; a group's own mean needs company."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from etude.rl.advantage import advantages
from etude.rl.baseline import RunningMeans, by_group, of_sound_groups
from etude.rl.settings import RlSettings

REWARDS = st.lists(
    st.tuples(st.floats(-1, 1), st.sampled_from(["debugging", "features", "tests"])), min_size=1, max_size=8
)


def test_the_worked_example():
    means = RunningMeans(100)
    assert means.advantages([1.0, 0.0, 0.0], ["tests"] * 3) == pytest.approx([1.0, -0.5, -0.5])
    assert means.advantages([1.0], ["tests"]) == pytest.approx([2 / 3])


def test_a_category_seen_for_the_first_time_alone_teaches_nothing_yet():
    means = RunningMeans(100)
    assert means.advantages([1.0], ["review"]) == [0.0]
    assert means.advantages([0.5], ["review"]) == [-0.5]


@given(REWARDS, st.integers(0, 7), st.floats(-1, 1))
def test_no_rollout_is_held_against_its_own_reward(batch, index, other):
    """Its advantage rises with its reward one for one, as far as its category has a baseline without it."""
    index %= len(batch)
    rewards, categories = [list(column) for column in zip(*batch, strict=True)]
    if categories.count(categories[index]) == 1:
        return
    changed = [*rewards[:index], other, *rewards[index + 1 :]]
    before, after = (RunningMeans(9).advantages(row, categories)[index] for row in (rewards, changed))
    assert after - before == pytest.approx(other - rewards[index], abs=1e-9)


@given(st.lists(REWARDS, min_size=2, max_size=5), st.integers(1, 9))
def test_a_state_read_back_goes_on_the_same_and_means_stay_within_the_rewards(steps, horizon):
    whole = RunningMeans(horizon)
    for batch in steps:
        resumed = RunningMeans(horizon)
        resumed.load_state_dict(whole.state_dict())
        rewards, categories = zip(*batch, strict=True)
        assert resumed.advantages(rewards, categories) == whole.advantages(rewards, categories)
        assert resumed.state_dict() == whole.state_dict()
    seen = [reward for batch in steps for reward, _ in batch]
    assert all(min(seen) - 1e-9 <= mean <= max(seen) + 1e-9 for mean in whole.means.values())


def test_a_group_of_one_without_a_baseline_is_refused_with_the_remedy():
    with pytest.raises(ValidationError, match='take rl.baseline = "category", or larger groups'):
        RlSettings(group_size=1)
    assert RlSettings(group_size=1, baseline="category").group_size == 1


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_reaches_no_other_and_moves_no_mean(odd):
    assert advantages([1.0, odd, 0.0]) == [0.0, 0.0, 0.0]
    assert by_group([1.0, odd, 1.0, 0.0], [2, 2]) == [0.0, 0.0, 0.5, -0.5]
    means, without = RunningMeans(100), RunningMeans(100)
    found = means.advantages([1.0, odd, 0.0], ["tests", "tests", "debugging"])
    wanted = without.advantages([1.0, 0.0], ["tests", "debugging"])
    assert found == [wanted[0], 0.0, wanted[1]] and means.state_dict() == without.state_dict()


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, 1.0, 0.5, math.nan, math.inf]), min_size=1, max_size=4), min_size=1, max_size=6
    )
)
def test_groups_with_such_a_reward_have_no_advantage_and_change_none_of_the_others(groups):
    rewards, sizes = [reward for group in groups for reward in group], [len(group) for group in groups]
    sound = [group for group in groups if all(map(math.isfinite, group))]
    found = of_sound_groups(rewards, sizes, lambda kept, places: by_group(kept, [len(group) for group in sound]))
    wanted = iter(by_group([reward for group in sound for reward in group], [len(group) for group in sound]))
    for group in groups:
        mine, found = found[: len(group)], found[len(group) :]
        if all(map(math.isfinite, group)):
            assert mine == [next(wanted) for _ in group]
        else:
            assert all(map(math.isnan, mine))
