"""A small part of `benchmarks/chaos.py`: a real run whose processes are killed, ten of eight kinds, keeps its promises (5, 6, 8)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.learn.engine.vllm.found import VARIABLE

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KILLS, STEPS, SEED = 10, 30, 5
REST = 15  # steps after the last planned kill: on a busy machine a kill comes some steps late


def test_whatever_is_killed_the_run_trains_each_task_once_and_no_fault_is_a_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import chaos
    from killing.plan import SHARES, plan

    shares = {kind: share for kind, share in SHARES.items() if kind != "gcs"}  # Ray takes a minute to miss its head
    settings = chaos.SETTINGS | {"steps": STEPS + REST, "seed": SEED, "ranks": 1}
    story = chaos.killed_run(chaos.CHECKPOINT, tmp_path, settings, plan(SEED, KILLS, STEPS, shares))
    result = chaos.figures(story) | {"broken": chaos.broken_promises(tmp_path / "rl", settings)}
    assert not chaos.bad(result), result
    assert result["kills"] == KILLS and len(result["by_kind"]) >= 6, result


def test_the_same_holds_where_vllm_is_the_engine_and_its_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = os.environ.get(VARIABLE) or pytest.skip(f"{VARIABLE} names no Python that has vLLM (docs/vllm.md)")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import chaos
    from killing.plan import plan

    engine = {"kind": "vllm", "vllm": {"python": python}}
    settings = chaos.SETTINGS | {"steps": 80, "seed": SEED, "ranks": 1, "engine": engine}
    shares = {"vllm": 3, "engine": 2, "controller": 1}
    story = chaos.killed_run(chaos.CHECKPOINT, tmp_path, settings, plan(SEED, 6, 60, shares))
    result = chaos.figures(story) | {"broken": chaos.broken_promises(tmp_path / "rl", settings)}
    assert not chaos.bad(result), result
    assert result["kills"] >= 5 and set(result["by_kind"]) == set(shares), result  # a window may outlast so short a run
