"""A suite keeps the proportions of training and never asks a task twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.bench.suite import FEWEST, choose, shares
from etude.factory.exercises.source import ExerciseSource
from etude.factory.settings import ExerciseSettings

weights = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0.1, 10), min_size=1, max_size=8)


@given(weights, st.integers(0, 300))
def test_shares_add_up_and_follow_the_weights(given_weights, extra):
    count = FEWEST * len(given_weights) + extra
    split = shares(given_weights, count)
    assert sum(split.values()) == count and min(split.values()) >= FEWEST
    for level, share in split.items():
        assert abs(share - FEWEST - extra * given_weights[level] / sum(given_weights.values())) < 1


def test_too_few_tasks_are_refused_with_the_number_needed():
    with pytest.raises(ValueError, match=r"bench\.tasks to 2"):
        shares({"a": 1.0, "b": 1.0}, 1)


def test_the_same_seed_asks_the_same_held_out_tasks_once_each():
    source = ExerciseSource(ExerciseSettings.model_validate({}))
    chosen = choose(source, {"one-bug": 3.0, "rename": 1.0}, 24, seed=5)
    again = choose(source, {"one-bug": 3.0, "rename": 1.0}, 24, seed=5)
    assert chosen == again and len({task.id for task in chosen}) == 24
    assert {task.split for task in chosen} == {"heldout"}
    others = choose(source, {"one-bug": 3.0, "rename": 1.0}, 24, seed=5, split="validation")
    assert {task.split for task in others} == {"validation"} and not {t.id for t in others} & {t.id for t in chosen}
