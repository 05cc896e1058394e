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
    "recipe": {"rl": {"max_staleness": 2}},
    "split": "heldout",
    "sandbox": {"backend": "local"},
    "lift": {"avg_points": 20.0, "ci95": [5.0, 30.0]},
    "over_controls": {"competent_sft": {"avg_points": 1.0, "avg_points_equal": 1.0}},
    "discovery": {"verdict": "sharpening, no discovery"},
    "overlap": {
        "statement": "nothing is shared",
        "training_bodies": 900,
        "heldout": {"function_overlap": 0.0, "template_overlap": 0.0},
        "heldout_in_validation": 0.0,
        "seen_share": 0.0,
        "validation_share": 0.0,
    },
    "corpus": {"library": {"copies": {"texts": 20}}},
    "perplexity": {
        "base": {"tokens": 900},
        "paired": {name: {"bits_per_byte": -0.1} for name in ("short_minus_base", "long_minus_short")},
    },
    "retrieval": {"old_length": 256},
    "mtp": {"acceptance": {"overlap": [0.5]}, "speedup": {"identical": True}},
    "rl": {
        "steps": 5,
        "counts": {
            "summarized": 3,
            "segments": 9,
            "swapped_in_flight": 4,
            "in_flight_swaps": 4,
            "replayed_tokens": 9,
            "replayed_routes": 9,
            "tokens_by_version": {"0": 5, "1": 4},
        },
        "shares": {"summarized_percent": 3.0, "in_flight_swaps_per_rollout": 0.2},
        "delta": {"bytes": 10},
        "mismatch": {"k3": 1e-12, "p99": 6e-6, "routes_equal": True},
        "staleness": {"max": 2},
    },
    "bench": {
        name: {"avg": avg, "avg_equal": avg}
        for name, avg in (("sft", 20.0), ("rl", 40.0), ("expert", 90.0), ("nop", 0), ("cheat", 0))
    },
}
SPOILT = [
    ("schema", 2),
    ("split", "validation"),
    ("sandbox", {}),
    ("lift.avg_points", 14.9),
    ("lift.ci95", [0.0, 30.0]),
    ("lift.ci95", None),
    ("lift", None),
    ("over_controls", {}),
    ("over_controls", {"competent_sft": {"avg_points": 1.0}}),
    ("discovery", None),
    ("overlap.statement", ""),
    ("overlap.seen_share", 0.1),
    ("overlap.heldout.template_overlap", 0.01),
    ("overlap.heldout_in_validation", 0.01),
    ("rl.counts.summarized", 0),
    ("rl.counts.swapped_in_flight", 0),
    ("rl.counts.in_flight_swaps", 0),
    ("rl.counts.replayed_tokens", 0),
    ("rl.counts.replayed_routes", 0),
    ("rl.counts.tokens_by_version", {"0": 9, "1": 0}),
    ("rl.shares", {}),
    ("rl.delta.bytes", 0),
    ("rl.mismatch.k3", 2e-9),
    ("rl.mismatch.p99", 2e-5),
    ("rl.mismatch.routes_equal", False),
    ("rl.staleness.max", 3),
    ("bench.sft.avg", 0),
    ("bench.rl.avg_equal", 0),
    ("bench.nop.avg", 1.0),
    ("bench.cheat.avg", 0.5),
    ("bench.expert", {}),
    ("corpus", {}),
    ("perplexity.base", {}),
    ("perplexity.paired.long_minus_short.bits_per_byte", 0.01),
    ("retrieval", {}),
    ("mtp.acceptance.overlap", []),
    ("mtp.speedup.identical", False),
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
