"""One document for the terminal and the report: each figure is that of the function which computes it, and the order of levels is free."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from etude.core.statistics.comparison import comparison, count_extremes, discrimination
from etude.core.statistics.pairs import compare, holm, paired_differences
from etude.core.statistics.power import detectable, pass_share, tasks_needed
from etude.core.statistics.rank import split_half

IDS = {"easy": [f"e{i}" for i in range(12)], "hard": [f"h{i}" for i in range(8)]}
WEIGHTS = {"easy": 3.0, "hard": 1.0}
COUNTS: dict[str, Any] = {"resamples": 300, "seed": 7}


def policies(skills: dict[str, float], passes: int = 3) -> dict[str, dict[str, np.ndarray]]:
    rng = np.random.default_rng(4)
    hardness = {"easy": np.linspace(-3, 3, 12), "hard": np.linspace(-1, 5, 8)}
    return {
        name: {
            level: (rng.random((len(hard), passes)) < 1 / (1 + np.exp(hard[:, None] - skill))).astype(float)
            for level, hard in hardness.items()
        }
        for name, skill in skills.items()
    }


FOUR = policies({"a": -1.0, "b": 0.0, "c": 1.0, "d": 2.0})


def test_every_figure_is_that_of_the_function_that_computes_it() -> None:
    found = comparison(FOUR, IDS, WEIGHTS, wished=5.0, **COUNTS)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [(p["a"], p["b"]) for p in found["pairs"]] == [(a, b) for i, a in enumerate("abcd") for b in "abcd"[i + 1 :]]
    means = {name: {level: table.mean(axis=1) for level, table in own.items()} for name, own in FOUR.items()}
    pair = found["pairs"][2]  # a, d
    alone = compare(means["a"], means["d"], WEIGHTS, **COUNTS)
    changes, least = (
        paired_differences(means["a"], means["d"]),
        detectable(paired_differences(means["a"], means["d"]), weights=WEIGHTS),
    )
    assert least is not None
    assert (pair["points"], pair["ci95"]) == alone.points.percent()
    assert pair["p"] == pytest.approx(alone.p, abs=1e-6) and pair["tasks"] == 20
    assert pair["detectable_points"] == pytest.approx(100 * least.difference, abs=0.005)
    assert pair["spread_from_passes"] == pytest.approx(pass_share(FOUR["a"], FOUR["d"], WEIGHTS), abs=5e-5)
    assert pair["tasks_needed"] == tasks_needed(changes, 0.05, weights=WEIGHTS)
    assert [p["p_holm"] for p in found["pairs"]] == pytest.approx(holm([p["p"] for p in found["pairs"]]), abs=1e-5)
    assert found["ranking"]["whole"] == pytest.approx(split_half(FOUR, WEIGHTS, seed=7).whole, abs=5e-5)
    tables = {name: np.concatenate(list(own.values())) for name, own in FOUR.items()}
    names = [task for level in IDS.values() for task in level]
    assert found["items"]["saturated"] == [names[i] for i in count_extremes(tables).saturated]
    expected = {name: r for name, r in zip(names, discrimination(tables), strict=True) if not np.isnan(r)}
    assert found["items"]["discrimination"] == pytest.approx(expected, abs=5e-5)
    assert list(found["items"]["discrimination"].values()) == sorted(found["items"]["discrimination"].values())


def test_a_policy_whose_levels_come_in_another_order_has_its_tasks_by_their_own_names() -> None:
    turned = {name: dict(reversed(own.items())) if name == "b" else own for name, own in FOUR.items()}
    assert comparison(turned, IDS, WEIGHTS, **COUNTS)["items"] == comparison(FOUR, IDS, WEIGHTS, **COUNTS)["items"]


def test_what_can_not_be_said_is_none() -> None:
    two = comparison(policies({"a": 0.0, "b": 1.0}, passes=1), IDS, **COUNTS)
    assert two["ranking"] is None and two["pairs"][0]["spread_from_passes"] is None
    assert "tasks_needed" not in two["pairs"][0]
    alone = comparison({"a": FOUR["a"]}, IDS, WEIGHTS, **COUNTS)
    assert alone["pairs"] == [] and alone["ranking"] is None
    same = comparison({"a": FOUR["a"], "b": FOUR["a"]}, IDS, WEIGHTS, wished=5.0, **COUNTS)["pairs"][0]
    assert (same["points"], same["p"], same["detectable_points"], same["tasks_needed"]) == (0.0, 1.0, None, None)
    assert same["ci95"][0] < 0 < same["ci95"][1]  # none differing is not equality


def test_policies_that_were_asked_other_tasks_are_refused() -> None:
    other = {level: table[1:] for level, table in FOUR["b"].items()}
    with pytest.raises(ValueError, match="the same tasks of every level"):
        comparison({"a": FOUR["a"], "b": other}, IDS, WEIGHTS, **COUNTS)
