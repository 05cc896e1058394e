"""The probe flags what a model reproduces and lets plausible code pass; nothing is asked twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.message import Message
from etude.tasks.generate.contamination.probing import ProbeAnswers, ask, flags, mark_task, summary
from etude.tasks.generate.contamination.question import LEAST_LINES, continuation, paths, questions
from etude.tasks.task import Task


def a_task(number: int) -> Task:
    body = [f"    step_{number}_{line} = transform_number(values, {line}, {number})" for line in range(9)]
    before = "def run(values):\n    return values\n"
    after = "def run(values):\n" + "\n".join(body) + "\n    return values\n"
    files = {f"src/pkg/part{number}.py": before, "README.md": "a project\n"}
    solution = {f"src/pkg/part{number}.py": after}
    meta = {"project": "pkg-1.0"}
    return Task(f"t{number}", "features", "x", "make run work", files, (), "commands", solution=solution, metadata=meta)


TASKS = [a_task(number) for number in range(6)]


def remembering(known: set[str], asked: list[str] | None = None) -> ScriptedPolicy:
    def say(request: Request) -> Message:
        if asked is not None:
            asked.append(request.session_id)
        task = next(task for task in TASKS if request.session_id.endswith(task.id))
        if task.id not in known:
            return Message("assistant", "    return values\n")
        (path,) = task.solution
        return Message("assistant", path if "paths" in request.session_id else task.solution[path])

    return ScriptedPolicy(say, name="foreign")


async def test_what_a_model_reproduces_is_flagged_and_the_rest_is_not(tmp_path: Path) -> None:
    rows = await ask(remembering({"t1", "t4"}), TASKS, ProbeAnswers(tmp_path / "foreign.jsonl"))
    assert flags(rows) == {name: {"continuation": 1.0, "paths": 1.0} for name in ("t1", "t4")}
    measured = summary("foreign", rows)
    assert measured["means"] == {
        "continuation": pytest.approx(1 / 3, abs=1e-3),
        "paths": pytest.approx(1 / 3, abs=1e-3),
    }


async def test_a_model_that_knew_all_tasks_is_flagged_at_all_of_them(tmp_path: Path) -> None:
    rows = await ask(remembering({task.id for task in TASKS}), TASKS, ProbeAnswers(tmp_path / "foreign.jsonl"))
    assert len(flags(rows)) == len(TASKS)


async def test_a_model_whose_every_answer_names_the_same_files_is_not_flagged(tmp_path: Path) -> None:
    every = "\n".join(path for task in TASKS for path in task.solution)
    policy = ScriptedPolicy(lambda request: Message("assistant", every), name="foreign")
    rows = await ask(policy, TASKS, ProbeAnswers(tmp_path / "foreign.jsonl"))
    assert summary("foreign", rows)["means"]["paths"] == 1.0 and not flags(rows)


async def test_nothing_is_asked_twice_and_a_torn_line_again(tmp_path: Path) -> None:
    asked: list[str] = []
    file = tmp_path / "foreign.jsonl"
    first = await ask(remembering({"t1"}, asked), TASKS, ProbeAnswers(file))
    assert len(asked) == 12
    assert await ask(remembering({"t1"}, asked), TASKS, ProbeAnswers(file)) == first and len(asked) == 12
    file.write_bytes(file.read_bytes()[:-5])
    await ask(remembering({"t1"}, asked), TASKS, ProbeAnswers(file), concurrency=1)
    assert len(asked) == 13


async def test_a_model_that_can_not_be_asked_is_an_error_and_keeps_what_was_answered(tmp_path: Path) -> None:
    count = 0

    def say(request: Request) -> Message:
        nonlocal count
        count += 1
        if count > 3:
            raise PolicyError("gone")
        return Message("assistant", "")

    file = tmp_path / "foreign.jsonl"
    with pytest.raises(ExceptionGroup):
        await ask(ScriptedPolicy(say, name="foreign"), TASKS, ProbeAnswers(file), concurrency=1)
    assert len(ProbeAnswers(file).rows) == 3


def test_the_shown_head_holds_nothing_that_is_wanted() -> None:
    for task in TASKS:
        for question in questions(task):
            assert question.score(question.prompt) == 0.0


def test_short_references_and_tasks_without_a_project_are_not_probed() -> None:
    task = a_task(0)
    (path,) = task.solution
    short = {path: task.files[path].replace("return values", "return list(values)")}
    assert continuation(Task("s", "debugging", "x", "fix", task.files, (), "commands", solution=short)) is None
    assert paths(Task("s", "debugging", "x", "fix", task.files, (), "commands", solution=short)) is None
    assert len(continuation(task).wanted) >= LEAST_LINES  # type: ignore[union-attr]


async def test_the_flag_goes_into_the_tasks_metadata_next_to_other_models(tmp_path: Path) -> None:
    rows = await ask(remembering({"t1"}), TASKS, ProbeAnswers(tmp_path / "foreign.jsonl"))
    known = flags(rows)
    task = mark_task(mark_task(TASKS[1], "other", [], {}), "foreign", rows, known)
    assert task.metadata["contamination"]["foreign"] == {"continuation": 1.0, "paths": 1.0, "flagged": True}
    assert task.metadata["contamination"]["other"] == {"flagged": False}
