"""Rejection sampling: what passed is kept once, a kill loses what was in flight, and any teacher's session can be taught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.reader import read_session
from etude.evaluate.bench.runs.scripted import expert, nop
from etude.rollout.attempt import AttemptSetup, Script
from etude.rollout.collect.collecting import Collection, CollectionSettings, change_digest
from etude.rollout.collect.taught import conversations, segments, taught
from etude.rollout.collect.tries import CollectionConflict, CollectionLog
from etude.rollout.settings import AttemptSettings
from etude.sandbox.errors import UserError
from etude.sandbox.protocol import SandboxPool
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.registry import GRADERS
from etude.tasks.task import Task

HARNESS = HarnessSettings.model_validate({"preset": "full", "max_session_tokens": 2_000_000, "temperature": 0.0})


def collecting(
    folder: Path,
    source: ExerciseSource,
    pool: SandboxPool,
    policy: Script,
    harness: HarnessSettings = HARNESS,
    **options: object,
) -> Collection:
    ids = source.ids("train", level="one-bug")[:3]
    wanted = CollectionSettings(ids, source.task, concurrency=2, **options)  # type: ignore[arg-type]
    setup = AttemptSetup(policy, pool, GRADERS, harness, settings=AttemptSettings(attempts=1))
    return Collection(wanted, setup, folder, CollectionLog(folder, {"teacher": "one"}))


async def test_what_passed_is_kept_and_never_tried_again(tmp_path: Path, source, pool) -> None:
    first = collecting(tmp_path, source, pool, expert)
    await first.run()
    assert [row.kept for row in first.tries.rows.values()] == [True] * 3
    assert len([*tmp_path.glob("*-000.jsonl")]) == 3
    again = collecting(tmp_path, source, pool, expert)
    assert (await again.run()).made == 0


async def test_what_did_not_pass_is_not_kept_and_says_why(tmp_path: Path, source, pool) -> None:
    one = collecting(tmp_path, source, pool, nop, tries=2)
    await one.run()
    assert len(one.tries.rows) == 6 and not one.tries.kept_attempts()
    assert all(row.why.startswith("not passed") for row in one.tries.rows.values())


async def test_two_sessions_that_left_the_same_files_are_kept_once(tmp_path: Path, source, pool) -> None:
    one = collecting(tmp_path, source, pool, expert, tries=3, per_task=2)
    await one.run()
    assert len(one.tries.kept_attempts()) == 3
    assert {row.why for row in one.tries.rows.values() if not row.kept} == {"left the same files as try 0"}


async def test_a_torn_line_is_tried_again_and_another_teacher_is_refused(tmp_path: Path, source, pool) -> None:
    one = collecting(tmp_path, source, pool, expert)
    await one.run()
    data = one.tries.path.read_bytes()
    one.tries.path.write_bytes(data[:-20])
    assert len(CollectionLog(tmp_path, {"teacher": "one"}).rows) == 2
    with pytest.raises(CollectionConflict, match="another teacher"):
        CollectionLog(tmp_path, {"teacher": "two"})


async def test_a_budget_begins_nothing_beyond_it(tmp_path: Path, source, pool) -> None:
    one = collecting(tmp_path, source, pool, expert, max_dollars=0.0)
    assert "$0.00" in (await one.run()).stopped and not one.tries.rows


async def test_faults_of_ours_are_reported_and_are_no_tries(tmp_path: Path, source, pool) -> None:
    class Refusing:
        async def create(self, spec: object) -> None:
            raise UserError("no such snapshot")

    one = collecting(tmp_path, source, Refusing(), expert)  # type: ignore[arg-type]
    assert len((await one.run()).faults) == 3 and not one.tries.rows


async def test_a_task_that_cannot_be_read_is_a_fault_and_the_others_are_collected(tmp_path: Path, source, pool) -> None:
    one = collecting(tmp_path, source, pool, expert)
    broken = one.wanted.tasks[1]

    def task(task_id: str) -> Task:
        if task_id == broken:
            raise ValueError("task.toml has no instruction")
        return source.task(task_id)

    one.wanted = replace(one.wanted, task=task)
    found = await one.run()
    assert found.made == 2 and [*found.faults] == [f"{broken}#0"]
    assert "ValueError: task.toml has no instruction" in str(found.faults[f"{broken}#0"])


async def test_a_session_without_tokens_is_taught_turn_by_turn(tmp_path: Path, source, pool) -> None:
    nano = HARNESS.model_copy(update={"preset": "nano"})
    await collecting(tmp_path, source, pool, expert, harness=nano).run()
    chat = NanoRenderer(byte_tokenizer())
    found = [*taught(tmp_path, chat)]
    assert len(found) == 3
    session = read_session(sorted(tmp_path.glob("*-000.jsonl"))[0])
    (turns,) = conversations(session)
    said = [turn.message for turn in turns if turn.said]
    (segment,) = segments(session, chat)
    sampled = segment.ids[segment.sampled].tolist()
    assert sampled == [
        token for number, message in enumerate(said) for token in chat.answer(message, first_call=number)
    ]


def test_an_empty_folder_teaches_nothing_and_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="session collect"):
        next(taught(tmp_path, NanoRenderer(byte_tokenizer())))


def test_the_same_work_has_the_same_digest() -> None:
    task = Task("t", "debugging", "x", "", {"a": "1", "b": "2"}, (), "commands")
    assert change_digest(task, {"a": b"1", "b": b"3"}) == change_digest(replace(task, id="u"), {"b": b"3", "a": b"1"})
    assert change_digest(task, {"a": b"1", "b": b"3"}) != change_digest(task, {"a": b"1"})
