"""`benchmarks/coverage.py`: the truths it holds intervals against are those of the benches it draws."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "coverage.py"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize("ability", [-3.7, 2.7])
def test_the_truths_are_what_very_large_benches_come_to(script: dict[str, Any], ability: float) -> None:
    counts = {"resamples": 2, "seed": 0}
    ((one, other),) = script["benches"]([ability, ability + script["STEP"]], 40_000, 8, 1)
    found, truth = script["intervals"](one, other, counts), script["truths"](ability, 8)
    assert found.keys() == truth.keys()
    for name, interval in found.items():
        assert interval.value == pytest.approx(truth[name], abs=0.012 if name == "cost" else 0.006), name


def test_best_of_partial_scores_is_the_mean_of_the_highest_draw(script: dict[str, Any]) -> None:
    highest = np.random.default_rng(0).binomial(5, 0.3, (200_000, 4)).max(axis=1) / 5
    assert script["_best_of_five"](np.array([0.3]), 4)[0] == pytest.approx(highest.mean(), abs=0.003)
