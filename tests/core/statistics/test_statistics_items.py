"""Which tasks tell policies apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.core.statistics.comparison import count_extremes, discrimination


def plain_discrimination(tables: dict[str, list[list[float]]], task: int) -> float:
    """Task against the sum of the others, one row a pass of a policy, each policy weighing the same."""
    rows = []
    for table in tables.values():
        for column in range(len(table[0])):
            own = table[task][column]
            rest = math.fsum(table[i][column] for i in range(len(table)) if i != task)
            rows.append((own, rest, 1 / (len(table[0]) * len(tables))))
    x, y = (math.fsum(row[side] * row[2] for row in rows) for side in (0, 1))
    xy = math.fsum((a - x) * (b - y) * w for a, b, w in rows)
    xx, yy = math.fsum((a - x) ** 2 * w for a, _, w in rows), math.fsum((b - y) ** 2 * w for _, b, w in rows)
    return xy / math.sqrt(xx * yy) if min(xx, yy) > 1e-12 else math.nan


fields = st.integers(2, 5).flatmap(
    lambda tasks: st.lists(
        st.integers(1, 4).flatmap(
            lambda passes: st.lists(
                st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=passes, max_size=passes),
                min_size=tasks,
                max_size=tasks,
            )
        ),
        min_size=1,
        max_size=4,
    )
)


@given(fields)
def test_discrimination_agrees_with_the_sums_written_out_to_1e_9(drawn: list[list[list[float]]]) -> None:
    tables = {str(i): table for i, table in enumerate(drawn)}
    found = discrimination({name: np.array(table) for name, table in tables.items()})
    for task, value in enumerate(found):
        exact = plain_discrimination(tables, task)
        assert (math.isnan(value) and math.isnan(exact)) or abs(value - exact) < 1e-9


def test_a_task_that_better_policies_fail_is_negative_and_one_of_chance_is_near_zero() -> None:
    rng = np.random.default_rng(0)
    rates = [0.1, 0.3, 0.5, 0.7, 0.9]
    tables = {}
    for i, rate in enumerate(rates):
        chances = np.array([rate] * 20 + [1 - rate, 0.5])
        tables[str(i)] = (rng.random((22, 60)) < chances[:, None]).astype(float)
    found = discrimination(tables)
    assert (found[:20] > 0.3).all() and found[20] < -0.3 and abs(found[21]) < 0.15


def test_more_passes_of_one_policy_do_not_change_what_tasks_tell() -> None:
    rng = np.random.default_rng(1)
    tables = {name: rng.random((6, 2)) for name in "abc"}
    repeated = tables | {"a": np.tile(tables["a"], 5)}
    assert discrimination(repeated) == pytest.approx(discrimination(tables))


def test_saturated_and_impossible_tasks_are_listed_and_discriminate_nothing() -> None:
    tables = {"a": np.array([[1, 1], [0, 0], [1, 0], [1, 1]]), "b": np.array([[1, 1], [0, 0], [1, 1], [1, 0.5]])}
    found = count_extremes(tables)
    assert (found.saturated, found.impossible) == ((0,), (1,))
    assert np.isnan(discrimination(tables)).tolist() == [True, True, False, False]


def test_policies_that_were_asked_other_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        discrimination({"a": np.ones((2, 1)), "b": np.ones((3, 1))})
    with pytest.raises(ValueError, match="no policy"):
        count_extremes({})
