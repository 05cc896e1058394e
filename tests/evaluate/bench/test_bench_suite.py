"""A suite keeps the proportions of training and never asks a task twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.evaluate.bench.suite import choose_tasks, shares
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings

weights = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.floats(0.1, 10), min_size=1, max_size=8)


@given(weights, st.integers(0, 300), st.integers(1, 20), st.data())
def test_shares_add_up_keep_their_floors_and_follow_the_weights_above_them(given_weights, extra, floor, data):
    floors = {level: data.draw(st.integers(0, floor)) for level in given_weights}
    fewest = {level: max(1, floors[level]) for level in given_weights}
    count = sum(fewest.values()) + extra
    split = shares(given_weights, count, floors)
    assert sum(split.values()) == count
    assert all(split[level] >= fewest[level] for level in split)
    free = [level for level in split if split[level] > fewest[level]]
    for one in free:  # a level above its minimum has its proportion, up to rounding
        for other in free:
            ratio = given_weights[one] / given_weights[other]
            assert split[one] - 1 <= (split[other] + 1) * ratio


def test_without_floors_shares_are_proportions():
    assert shares({"a": 3.0, "b": 1.0, "c": 0.0}, 40) == {"a": 30, "b": 10}
    assert shares({"a": 3.0, "b": 1.0}, 40, {"b": 16}) == {"a": 24, "b": 16}


def test_too_few_tasks_are_refused_with_the_number_needed():
    with pytest.raises(ValueError, match=r"ask for 2 or more \(bench\.tasks"):
        shares({"a": 1.0, "b": 1.0}, 1)
    with pytest.raises(ValueError, match="tasks_per_level_min"):
        shares({"a": 1.0, "b": 1.0}, 20, {"a": 12, "b": 12})


def test_the_same_seed_asks_the_same_held_out_tasks_once_each():
    source = ExerciseSource(ExerciseSettings.model_validate({}))
    chosen = choose_tasks(source, {"one-bug": 3.0, "rename": 1.0}, 24, seed=5)
    again = choose_tasks(source, {"one-bug": 3.0, "rename": 1.0}, 24, seed=5)
    assert chosen == again and len({task.id for task in chosen}) == 24
    assert {task.split for task in chosen} == {"heldout"}
    others = choose_tasks(source, {"one-bug": 3.0, "rename": 1.0}, 24, seed=5, split="validation")
    assert {task.split for task in others} == {"validation"} and not {t.id for t in others} & {t.id for t in chosen}
