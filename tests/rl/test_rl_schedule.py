"""The task list is fixed by the seed, has no task twice, and keeps the shares of the levels."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.schedule import draw, task_list
from etude.rl.settings import RlSettings

POOLS = {"easy": [f"easy-{i}" for i in range(300)], "hard": [f"hard-{i}" for i in range(300)]}


@given(seed=st.integers(0, 1000), count=st.integers(1, 200), share=st.floats(0.1, 3))
def test_same_seed_same_list_and_no_task_twice(seed, count, share):
    schedule = draw(POOLS, {"easy": 1.0, "hard": share}, count, seed)
    assert schedule == draw(POOLS, {"easy": 1.0, "hard": share}, count, seed)
    assert len(set(schedule.task_ids)) == len(schedule) == count
    easy = sum(task.startswith("easy") for task in schedule.task_ids)
    assert abs(easy - count / (1 + share)) <= 1


class Source:
    def ids(self, split, *, level=None):
        return POOLS[level] if level else POOLS["easy"] + POOLS["hard"]


def test_a_level_of_share_nought_is_left_out_and_all_of_them_are_an_error():
    settings = RlSettings(steps=2, groups_per_step=5, levels={"easy": 1.0, "hard": 0.0})
    assert {task.split("-")[0] for task in task_list(settings, Source()).task_ids} == {"easy"}
    with pytest.raises(ValueError, match="at least one has to be positive"):
        task_list(settings.model_copy(update={"levels": {"easy": 0.0}}), Source())


def test_different_seeds_differ():
    assert draw(POOLS, {}, 50, 1).digest != draw(POOLS, {}, 50, 2).digest


def test_too_few_tasks_is_said_with_the_remedy():
    with pytest.raises(ValueError, match="400 tasks of level hard are needed .* but there are 300"):
        draw(POOLS, {"easy": 0.0}, 400, 0)


def test_unknown_level_is_refused():
    with pytest.raises(ValueError, match="no tasks of level nightmare"):
        draw(POOLS, {"nightmare": 1.0}, 4, 0)


class Vast:
    """A source of a million tasks a level that makes an id when it is asked for it, and counts how often."""

    name = "vast"

    def __init__(self) -> None:
        self.made = 0

    def ids(self, split, *, level=None):
        source = self

        class Ids(Sequence):
            def __len__(self):
                return 1_000_000

            def __getitem__(self, place):
                source.made += 1
                return f"{level}/{place}"

        return Ids()


def test_the_reserve_is_drawn_next_to_the_list_of_other_tasks_and_makes_few_ids():
    wanted = RlSettings.model_validate(
        {"steps": 3, "groups_per_step": 4, "levels": {"a": 2, "b": 1}, "max_unreachable": 5}
    )
    without = task_list(wanted.model_copy(update={"max_unreachable": 0}), Vast())
    source = Vast()
    found = task_list(wanted, source)
    assert found.task_ids == without.task_ids and found.digest == without.digest and without.reserve == ()
    assert len(set(found.reserve)) == 5 and not set(found.reserve) & set(found.task_ids) and source.made < 100
    assert [found.task(group) for group in range(17)] == [*found.task_ids, *found.reserve]
    assert task_list(wanted, Vast()).reserve == found.reserve


def test_a_source_without_more_tasks_has_a_smaller_reserve():
    class Few(Vast):
        def ids(self, split, *, level=None):
            return [f"t{n}" for n in range(7)]

    found = task_list(RlSettings.model_validate({"steps": 3, "groups_per_step": 2}), Few())
    assert len(found.reserve) == 1 and {*found.task_ids, *found.reserve} == {f"t{n}" for n in range(7)}
