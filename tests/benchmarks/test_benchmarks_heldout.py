"""`benchmarks/learning.py --control`: held-out answers of the start, the control and RL, by seed and pooled; and the figure of all of it."""

from __future__ import annotations

import json
import runpy
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.core.trace.segment import Rollout, Segment
from etude.evaluate.bench.outcome import Outcome, OutcomeFile

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TASKS = 12
SOLVED = {"sft": 1, "rewarded_sft": 2, "rl": 3}  # of four passes at every task


def asked(folder: Path, seed: int) -> None:
    """A finished bench whose policies are listed by what they earned, not as they were asked."""
    held = folder / "heldout"
    for name, solved in SOLVED.items():
        file = OutcomeFile(held / "policies" / f"{name}@medium.jsonl")
        for task in range(TASKS):
            for attempt in range(4):
                score = float(attempt < min(4, solved + seed))
                level = "relapse" if task % 3 == 0 else "one-bug"
                file.add(Outcome(f"t{task}", attempt, "debugging", level, score, 10, 1, 1, 1.0))
    entries = [{"name": name, "key": f"{name}@medium"} for name in sorted(SOLVED, reverse=True)]
    (held / "report.json").write_text(json.dumps({"policies": entries}))
    seconds = {"rl": 180.0, "attempts": 90.0, "rewarded_sft": 45.4}
    (folder / "stages.json").write_text(json.dumps({name: {"core_seconds": s} for name, s in seconds.items()}))


def test_rl_is_held_against_start_and_control_by_seed_and_with_all_seeds_as_one(tmp_path: Path) -> None:
    learning: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "learning.py"), run_name="learning")
    for seed in (0, 1):
        asked(tmp_path / "base" / f"seed-{seed}", seed)
    found = learning["control"](tmp_path, [0, 1, 2])
    assert found["seeds"]["0"]["avg_percent"] == {"rl": 75.0, "rewarded_sft": 50.0, "sft": 25.0}
    assert found["seeds"]["1"]["avg_percent"] == {"rl": 100.0, "rewarded_sft": 75.0, "sft": 50.0}
    over = found["pooled"]["rl_over"]
    assert (over["sft"]["avg_points"], over["rewarded_sft"]["avg_points"]) == (50.0, 25.0)
    assert over["sft"]["best_of"]["k"] == 8, "the passes of both seeds at a task count together"
    assert found["core_seconds"] == {str(seed): {"rl": 180, "rewarded_sft": 135} for seed in (0, 1)}
    assert learning["control"](tmp_path / "none", [0]) == {}


def test_the_mismatch_with_and_without_replay_is_of_the_same_tokens_by_age() -> None:
    bench: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "replay_mismatch.py"), run_name="replay_mismatch")
    sampled = np.array([False, True, True, True])
    theirs = np.array([0, -1, -2, -3], np.float32)
    segment = Segment(np.arange(4, dtype=np.int32), sampled, theirs, np.array([-1, 4, 3, 4], np.int32))
    rollout = Rollout("r", "t", 0, [segment])
    current, plain = [[theirs + 0.1]], [[theirs + np.array([0, 0.2, 0.4, 0.2], np.float32)]]
    found = bench["by_age"]([rollout], current, plain, 5)
    assert {age: (len(gaps.replayed), len(gaps.plain)) for age, gaps in found.items()} == {1: (2, 2), 2: (1, 1)}
    measured = bench["row"]("base", 2, [found[2]])
    assert (measured["p99_on"], measured["p99_off"], measured["off_over_on"]) == (0.1, 0.4, 4.0) and measured[
        "k3_off"
    ] > measured["k3_on"] > 0


def test_the_figure_has_a_row_for_each_arm_each_seed_and_each_age(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    figures: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "learning_figures.py"), run_name="figures")
    row = {"solved_points": -1.0, "solved_ci95": [-2.0, 0.5], "tokens": 3.0}
    over = {"avg_points": 5.0, "ci95": [1.0, 9.0]}
    margins = {
        "avg_percent": {"rl": 50.0, "rewarded_sft": 45.0, "sft": 20.0},
        "rl_over": dict.fromkeys(("sft", "rewarded_sft"), over),
    }
    result = {
        "arms": {"none": {"seeds": [{"dlogp_p99": 0.1}, {"dlogp_p99": 0.3}]}},
        "against_base": {"none": row},
        "control": {"seeds": {"0": margins}, "pooled": margins},
        "replay": [{"on": "mxfp8", "age": 1, "off_over_on": 1.1, "ci95": [1.0, 1.2], "p99_on": 0.1, "p99_off": 0.11}],
    }
    drawn = xml.etree.ElementTree.fromstring(figures["learning"](result))
    words = [text.text or "" for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    for label in ("none (2 seeds)", "+3.0 · 0.200", "seed 0, over SFT", "all seeds, over its control", "mxfp8, age 1"):
        assert label in words, label
    assert len(list(drawn.iter("{http://www.w3.org/2000/svg}circle"))) == 1 + 4 + 1
    del result["control"]
    assert "Held-out" not in figures["learning"](result)
