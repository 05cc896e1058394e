"""`benchmarks/learning.py` and `overlap.py`: figures of finished runs are paired by task, and tell a difference only where there is one."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.core.trace.gap_file import write_gaps
from etude.core.trace.segment import Rollout, Segment
from etude.pipeline.recipe.read import find_recipe, read_recipe
from etude.rl.steps import StepRecord, append
from etude.rl.store import GroupStore
from etude.rollout.latencies import read_latencies

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
GROUPS, SIZE = 60, 4


def rollout(group: int, member: int, solved: bool, tokens: int) -> Rollout:
    ids = np.zeros(tokens + 3, np.int32)
    sampled = np.arange(tokens + 3) >= 3
    segment = Segment(ids, sampled, np.zeros(len(ids), np.float32), np.where(sampled, 0, -1).astype(np.int32))
    level = "one-bug" if group % 2 else "rename"
    name = f"{level}/train/{group}"
    return Rollout(f"{name}#{member}", name, group, [segment], {"outcome": float(solved)})


def finished(folder: Path, *, solved: int, tokens: int, p99: float) -> None:
    """A run whose last third solves `solved` of each group's four with `tokens` tokens, after two thirds that solve all."""
    store = GroupStore(folder / "rl" / "groups")
    for group in range(GROUPS):
        late = group >= GROUPS * 2 // 3
        members = [rollout(group, m, not late or m < solved, tokens if late else 99) for m in range(SIZE)]
        store.save(group, members)
        write_gaps(folder / "rl" / "gaps" / f"{group:06d}.npy", [gaps_of(m, p99) for m in members])
    for step in (1, 2):  # all is sampled by version 0
        of_step = [group for group in range(GROUPS) if group % 2 == step - 1]
        append(folder / "rl" / "steps.jsonl", StepRecord(step, of_step, {}, {}, [], []))
    point = {"pass_rate": 0.5, "drift_k3": 1e-4}
    curve = [point | {"drift_p99": p99 + 0.001 * n, "staleness_max": min(n, 2)} for n in range(15)]
    (folder / "rl" / "summary.json").write_text(json.dumps({"curve": curve}))
    (folder / "stages.json").write_text(json.dumps({"rl": {"core_seconds": 100.4}}))


def gaps_of(rollout: Rollout, p99: float) -> np.ndarray:
    """Of the size asked for, either way."""
    return np.array([-p99, p99] * 100)[: int(rollout.segments[0].sampled.sum())]


def test_arms_are_held_against_base_on_the_same_tasks_and_finished_ones_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = {"base": (2, 40, 0.1), "no_replay": (2, 40, 0.3), "no_penalty": (3, 40, 0.1), "penalty_0.05": (2, 30, 0.1)}
    for arm, (solved, tokens, p99) in arms.items():
        finished(tmp_path / arm / "seed-0", solved=solved, tokens=tokens, p99=p99)
    out = tmp_path / "learning.json"
    words = ["learning.py", "--seeds", "0", "--only", *arms, "--runs", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))  # a run would be started with it, and can't
    runpy.run_path(str(BENCHMARKS / "learning.py"), run_name="__main__")
    found = json.loads(out.read_text())
    (base,) = found["arms"]["base"]["seeds"]
    assert (base["tasks"], base["solved_percent"], base["tokens"], base["core_seconds"]) == (20, 50.0, 40.0, 100)
    assert "ppo_clip" not in found["arms"] and set(found["against_base"]) == set(arms) - {"base"}
    better, shorter = found["against_base"]["no_penalty"], found["against_base"]["penalty_0.05"]
    assert better["solved_points"] == 25.0 and better["solved_ci95"][0] > 0 and better["tokens"] == 0.0
    assert shorter["solved_points"] == 0.0 and shorter["easy_tokens_ci95"] == [-10.0, -10.0]
    assert found["penalty_against_none"]["solved_points"] == -25.0
    assert [row["age"] for row in found["replay"]] == [1, 2]
    for row in found["replay"]:
        assert (row["on"], row["off"]) == ("base", "no_replay")
        assert row["p99_on"] == pytest.approx(0.1, abs=1e-3) and row["off_over_on"] == pytest.approx(3, abs=0.01)
        assert row["ci95"] == pytest.approx([3, 3], abs=0.01)


def test_both_modes_of_the_recorded_case_see_the_same_latencies_and_only_async_may_be_stale(tmp_path: Path) -> None:
    overlap: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "overlap.py"), run_name="overlap")
    recipe, case = read_recipe([find_recipe("laptop")], []), overlap["CASES"]["recorded"]
    (sync, _), (asynchronous, _) = (
        overlap["Case"](recipe, tmp_path, mode, 1, found=case).settings() for mode in ("sync", "async")
    )
    assert sync["attempt"] == asynchronous["attempt"]
    assert read_latencies(sync["attempt"].tool_latencies).seconds["test"]
    batch = recipe.rl.groups_per_step * recipe.rl.group_size
    assert (sync["slots"], asynchronous["slots"]) == (batch, 5 * batch)
    assert asynchronous["max_staleness"] == 4 and case.bar == 0.4


def test_what_async_earns_is_held_against_sync_by_task_and_by_step(tmp_path: Path) -> None:
    overlap: dict[str, Any] = runpy.run_path(str(BENCHMARKS / "overlap.py"), run_name="overlap")
    sync = {f"t{n}": 0.25 * (n % 3) for n in range(30)}
    more = {task: value + 0.25 for task, value in sync.items()} | {"only here": 0.0}
    gain = overlap["earned"](sync, more)
    assert gain["tasks"] == 30 and gain["points"] == 25.0 and gain["ci95"][0] > 0
    store = GroupStore(tmp_path / "groups")
    for group in range(4):
        store.save(group, [rollout(group, m, m < group, 5) for m in range(SIZE)])
    for step, groups in enumerate(([0, 2], [1, 3])):
        append(tmp_path / "steps.jsonl", StepRecord(step, groups, {}, {}, [], []))
    assert [value for value, *_ in overlap["curve_of"](tmp_path)] == [25.0, 50.0]
    assert overlap["solved_by_task"](tmp_path)["one-bug/train/3"] == 0.75
