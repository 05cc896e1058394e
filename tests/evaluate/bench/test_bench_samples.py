"""Sessions that a bench keeps: some of each level and result, with their verdict, and no more of them after a kill."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from etude.cli.session import replay
from etude.core.events.log import EventLog
from etude.core.trace.reader import read_session
from etude.evaluate.bench.bench_stage import BenchStage
from etude.evaluate.bench.outcome import Outcome
from etude.pipeline.recipe.read import read_recipe, resolved_toml
from etude.rollout.attempt import AttemptSetup
from etude.sandbox.pool import open_pool
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.scripted_policies import BASELINES
from etude.tasks.registry import GRADERS

LEVELS = ("one-bug", "rename")
RECIPE = read_recipe([])


def ask(folder: Path, names: tuple[str, ...], passes: int = 2) -> dict[str, list[Outcome]]:
    """Three tasks of each level, asked of scripted policies."""
    source = ExerciseSource(RECIPE.exercises)
    tasks = [source.task(task_id) for level in LEVELS for task_id in source.ids("heldout", level=level)[:3]]

    async def run() -> dict[str, list[Outcome]]:
        pool = await open_pool(RECIPE.sandbox)
        try:
            stage = BenchStage(tasks, folder, 4, 0, EventLog.null(), keep_sessions=2)
            setups = {name: AttemptSetup(BASELINES[name], pool, GRADERS, RECIPE.harness) for name in names}
            return {name: await stage.run(name, setup, passes) for name, setup in setups.items()}
        finally:
            await pool.close()

    return asyncio.run(run())


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    (tmp_path / "recipe.toml").write_text(resolved_toml(RECIPE))
    ask(tmp_path / "bench", ("expert", "nop"))
    return tmp_path / "bench"


def test_each_level_and_result_has_its_sessions_with_the_verdict(bench: Path) -> None:
    found = {p.name: read_session(p) for p in (bench / "sessions" / "nop").glob("*.jsonl")}
    assert sorted(found) == [f"{level}-failed-{n}.jsonl" for level in LEVELS for n in range(2)]
    for session in found.values():
        verdict = session.of("verdict")[0].data
        assert verdict["score"] == 0.0 and verdict["reason"]
        assert session.header.recipe["policy"] == "nop" and session.header.recipe["stage"] == "bench"
    solved = [read_session(p) for p in (bench / "sessions" / "expert").glob("*-solved-*.jsonl")]
    assert solved and all(session.of("verdict")[0].data["score"] == 1.0 for session in solved)


def test_they_replay_byte_for_byte(bench: Path) -> None:
    answer = replay([bench])
    assert answer.code == 0 and answer.document["sessions"] >= 6, answer.text


def test_a_bench_that_goes_on_adds_to_what_lies_there_and_replaces_nothing(bench: Path) -> None:
    place = bench / "sessions" / "nop"
    before = {p.name: p.read_bytes() for p in place.glob("*.jsonl")}
    lost = place / "rename-failed-1.jsonl"
    lost.unlink()
    ask(bench, ("nop",), passes=3)
    after = {p.name: p.read_bytes() for p in place.glob("*.jsonl")}
    assert after.keys() == before.keys()
    assert all(after[name] == data for name, data in before.items() if name != lost.name)
