"""Sessions come from real sandboxes, agree with the memory workspace, replay byte-equal, and survive a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.events.log import EventLog
from etude.factory.demonstration import demonstrate
from etude.factory.exercises.source import ExerciseSource
from etude.factory.opponents import OPPONENTS
from etude.factory.sessions import SEED_STRIDE, collect_sessions, read_sessions, session_path
from etude.factory.settings import SessionSettings
from etude.harness.replay import replay
from etude.harness.settings import HarnessSettings
from etude.rollout.attempt import Setup, attempt
from etude.sandbox.protocol import SandboxPool, SandboxSpec
from etude.tasks.registry import GRADERS
from etude.trace.session import Session

HARNESS = HarnessSettings()


def _content(session: Session) -> list[tuple[str, object]]:
    """What was said and answered, without times."""
    return [(e.type, {k: v for k, v in e.data.items() if k not in ("usage", "seconds")}) for e in session.entries]


async def _collect(folder: Path, count: int, source: ExerciseSource, pool: SandboxPool) -> int:
    settings = SessionSettings(count=count, concurrency=4)
    return await collect_sessions(source, settings, HARNESS, None, pool, folder, EventLog.null())


async def test_real_sessions_equal_those_in_memory_and_replay_byte_equal(
    tmp_path: Path, source: ExerciseSource, pool: SandboxPool
) -> None:
    await _check_sessions(tmp_path, source, pool, 16)


@pytest.mark.nightly
async def test_64_real_sessions_replay_byte_equal(tmp_path: Path, source: ExerciseSource, pool: SandboxPool) -> None:
    await _check_sessions(tmp_path, source, pool, 64)


async def _check_sessions(folder: Path, source: ExerciseSource, pool: SandboxPool, count: int) -> None:
    assert await _collect(folder, count, source, pool) == count
    sessions = list(read_sessions(folder))
    assert len(sessions) == count
    for number, session in enumerate(sessions):
        task = source.task(session.header.task_id)
        expected, _, competent = demonstrate(task, SEED_STRIDE + number, competence=0.5, settings=HARNESS)
        assert _content(session) == _content(expected.session), task.id
        assert session.header.recipe["competent"] == competent
        files = {path: text.encode() for path, text in task.files.items()}
        sandbox = await pool.create(SandboxSpec(files=files))
        assert await replay(session, sandbox) is None
        await sandbox.kill()
    good = list(read_sessions(folder, competent_only=True))
    assert 0 < len(good) < count


async def test_collection_goes_on_where_it_was_killed(
    tmp_path: Path, source: ExerciseSource, pool: SandboxPool
) -> None:
    assert await _collect(tmp_path, 6, source, pool) == 6
    before = {number: session_path(tmp_path, number).read_bytes() for number in range(6)}
    torn = session_path(tmp_path, 2)
    torn.write_bytes(before[2][: len(before[2]) // 2])
    session_path(tmp_path, 4).unlink()
    assert await _collect(tmp_path, 8, source, pool) == 4
    for number in (0, 1, 3, 5):
        assert session_path(tmp_path, number).read_bytes() == before[number]
    assert len(list(read_sessions(tmp_path))) == 8
    assert await _collect(tmp_path, 8, source, pool) == 0


@pytest.mark.parametrize("name, passes", [("expert", True), ("nop", False), ("cheat", False)])
async def test_the_bench_opponents_score_what_they_should(
    source: ExerciseSource, pool: SandboxPool, name: str, passes: bool
) -> None:
    harness = HarnessSettings(max_session_tokens=4000, max_tokens_per_turn=4000)
    for seed, task_id in enumerate(source.ids("heldout")[:12]):
        task = source.task(task_id)
        setup = Setup(OPPONENTS[name](task, seed), pool, GRADERS, harness)
        result = await attempt(task, setup, seed=seed)
        assert result.verdict.passed == (passes and task.level != "relapse"), (task_id, result.verdict.reason)
