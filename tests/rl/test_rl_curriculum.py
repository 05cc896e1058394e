"""Harder tasks later on: nothing is drawn twice, the start is as it was, and the end leans to what took turns and thinking."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.rl.curriculum import hardness, order, ramp
from etude.rl.schedule import task_list
from etude.rl.settings import RlSettings

SIGN = st.one_of(st.none(), st.floats(0, 1e6))
SIGNS = st.dictionaries(st.text("abcdef", min_size=1, max_size=4), st.tuples(SIGN, SIGN), max_size=30)


@given(SIGNS)
def test_hardness_is_a_rank_and_who_was_never_tried_is_in_the_middle(signs: Mapping) -> None:
    found = hardness(signs)
    assert found.keys() == signs.keys() and all(-1 <= value <= 1 for value in found.values())
    assert all(found[task] == 0 for task, pair in signs.items() if pair == (None, None))
    assert abs(sum(hardness({task: (turns, None) for task, (turns, _) in signs.items()}).values())) < 1e-6


@given(SIGNS, st.floats(0.5, 100))
def test_more_turns_or_more_thinking_is_never_easier(signs: Mapping, more: float) -> None:
    known = {task: pair for task, pair in signs.items() if pair[0] is not None}
    before = hardness(signs)
    for task, (turns, thinking) in known.items():
        assert hardness({**signs, task: (turns + more, thinking)})[task] >= before[task] - 1e-9


@given(st.floats(0, 1), st.floats(0, 0.99))
def test_the_ramp_begins_at_the_start_and_is_whole_at_the_end(way: float, start: float) -> None:
    assert 0 <= ramp(way, start) <= 1 and ramp(1.0, start) == 1.0
    assert ramp(way, start) == 0 or way > start


POOLS = {"easy": [f"easy-{i}" for i in range(40)], "other": [f"other-{i}" for i in range(40)]}
HARD = {task: 2 * place / 39 - 1 for ids in POOLS.values() for place, task in enumerate(ids)}


@given(
    st.lists(st.sampled_from(["easy", "other"]), max_size=60).filter(lambda x: max(map(x.count, POOLS)) <= 40),
    st.integers(0, 99),
)
def test_every_place_keeps_its_level_and_no_task_comes_twice(levels: list[str], seed: int) -> None:
    drawn = order(levels, POOLS, HARD, 2.0, 0.5, seed)
    assert [task.split("-")[0] for task in drawn] == levels and len(set(drawn)) == len(drawn)
    assert drawn == order(levels, POOLS, HARD, 2.0, 0.5, seed)


def test_the_second_half_is_harder_the_more_the_stronger() -> None:
    def halves(strength: float) -> tuple[float, float]:
        drawn = [order(["easy"] * 20, POOLS, HARD, strength, 0.5, seed) for seed in range(60)]
        first, last = ([HARD[t] for one in drawn for t in part(one)] for part in (lambda d: d[:10], lambda d: d[10:]))
        return float(np.mean(first)), float(np.mean(last))

    none, some, much = halves(0.0), halves(1.0), halves(4.0)
    assert abs(none[0]) < 0.1 and abs(some[0] - none[0]) < 0.1 and abs(much[0] - none[0]) < 0.1
    assert none[1] + 0.1 < some[1] and some[1] + 0.15 < much[1]


class Source:
    name = "made"

    def ids(self, split, *, level=None):
        return POOLS[level] if level else POOLS["easy"] + POOLS["other"]


class Attempted(Source):
    def signs(self):
        return {task: (10 + value, None) for task, value in HARD.items()}


def test_a_schedule_keeps_its_levels_and_a_source_without_rollouts_says_what_to_do() -> None:
    settings = RlSettings(steps=3, groups_per_step=6, levels={"easy": 1.0, "other": 2.0})
    curriculum = settings.curriculum.model_copy(update={"strength": 2.0})
    plain, tilted = (
        task_list(settings, Attempted()),
        task_list(settings.model_copy(update={"curriculum": curriculum}), Attempted()),
    )
    level = lambda schedule: [task.split("-")[0] for task in schedule.task_ids]
    assert level(plain) == level(tilted) and plain.digest != tilted.digest
    with pytest.raises(
        ValueError, match="rl.curriculum.strength = 2 .*`etude tasks difficulty DIR --runs DIR`, or leave it at 0"
    ):
        task_list(settings.model_copy(update={"curriculum": curriculum}), Source())
