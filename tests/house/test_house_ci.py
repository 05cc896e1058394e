"""The assertions CI makes on a report: each one can fail."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GOOD: dict[str, Any] = {
    "schema": 1,
    "lift": {"avg_points": 20.0, "ci95": [5.0, 30.0]},
    "rl": {
        "steps": 5,
        "counts": {"summarized": 3, "swapped_in_flight": 4, "replayed_tokens": 9, "replayed_routes": 9},
        "delta": {"bytes": 10},
    },
    "bench": {
        name: {"avg": avg} for name, avg in (("sft", 20.0), ("rl", 40.0), ("expert", 90.0), ("nop", 0), ("cheat", 0))
    },
}
SPOILT = [
    ("schema", 2),
    ("lift.avg_points", 14.9),
    ("lift.ci95", [0.0, 30.0]),
    ("lift.ci95", None),
    ("lift", None),
    ("rl.counts.summarized", 0),
    ("rl.counts.swapped_in_flight", 0),
    ("rl.counts.replayed_tokens", 0),
    ("rl.counts.replayed_routes", 0),
    ("rl.delta.bytes", 0),
    ("bench.sft.avg", 0),
    ("bench.nop.avg", 1.0),
    ("bench.cheat.avg", 0.5),
    ("bench.expert", {}),
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_report", Path(__file__).parents[2] / ".ci" / "check_report.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_good_report_passes(script: ModuleType) -> None:
    assert script.failures(GOOD) == []


@pytest.mark.parametrize(("path", "value"), SPOILT)
def test_a_spoilt_figure_is_named(script: ModuleType, path: str, value: object) -> None:
    report = copy.deepcopy(GOOD)
    *above, last = path.split(".")
    place = report
    for part in above:
        place = place[part]
    place[last] = value
    wrong = script.failures(report)
    assert wrong and all(line.startswith(path) for line in wrong)
