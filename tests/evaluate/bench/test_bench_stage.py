"""The bench of a run: what it reports while it goes, and what it does where attempts can't be made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.core.events.log import EventLog
from etude.core.trace.segment import Rollout
from etude.evaluate.bench.bench_stage import PRODUCED, BenchStage, BenchUnfinished
from etude.rollout.attempt import Attempt, AttemptSetup
from etude.rollout.retry import InfraFault
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings
from etude.tasks.task import Verdict


async def test_an_attempt_that_can_not_be_made_is_noted_when_it_fails_and_counts_in_no_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ExerciseSource(ExerciseSettings())
    tasks = [source.task(task_id) for task_id in source.ids("heldout", level="rename")[:4]]
    bad = tasks[1].id

    async def attempt(task: Any, setup: Any, *, name: str, seed: int, group: int) -> Attempt:
        if task.id == bad:
            raise InfraFault(f"{name}: no image")
        counters = dict.fromkeys((*(f"{kind}_tokens" for kind in PRODUCED), "calls", "turns"), 0.0)
        return Attempt(Rollout(name, task.id, 0, [], {"outcome": 1.0}, counters), Verdict(1.0), None, {}, {"all": 1.0})  # type: ignore[arg-type]

    monkeypatch.setattr("etude.rollout.batch.attempt", attempt)
    stage = BenchStage(tasks, tmp_path, 1, 0, EventLog(tmp_path / "events.jsonl"), stage="trials")
    setup = AttemptSetup(None, None, {}, None)  # type: ignore[arg-type]
    with pytest.raises(BenchUnfinished, match="base: 1 of 4 attempts met infra faults; the last: .*no image"):
        await stage.run("base", setup, 1)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    (note,) = [event["text"] for event in events if event["kind"] == "note"]
    assert note == f"base, no attempt: {bad}#0: no image"
    last = [event for event in events if event["kind"] == "progress"][-1]
    assert last["done"] == 4 and last["info"]["average"] == 100.0
