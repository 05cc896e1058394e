"""The auditor: blind to the outcome, reads all surprising passes, changes no score; averages without what it flagged; what a model knew before."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etude.agent.policy.protocol import PolicyError, Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder
from etude.core.trace.writer import write_session
from etude.evaluate.bench.audit.audited_run import audit_results
from etude.evaluate.bench.audit.auditor import Auditor, Pass, auditor_rubric, surprising_passes
from etude.evaluate.bench.audit.contamination import TooFewTasks, hidden_content, probe
from etude.evaluate.bench.audit.evidence import Start
from etude.evaluate.bench.audit.finding import read_findings, write_findings
from etude.evaluate.bench.audit.recall import RecallFile
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judgement import JudgementFile
from etude.evaluate.bench.outcome import Outcome
from etude.tasks.task import Task

START = Start(
    {"calc.py": "def add(a, b):\n    return a - b\n", "check.py": "x\n"},
    frozenset({"check.py"}),
    frozenset({"calc.py"}),
)


def outcome(task: str, score: float, *, turns: int = 8, attempt: int = 0) -> Outcome:
    return Outcome(task, attempt, "debugging", "l", score, 100, 5, turns, 1.0)


def session(path: Path, *calls: ToolCall, tested: bool = True) -> None:
    """A session on disk that made these calls, and ran the tests."""
    recorder = Recorder(SessionHeader(path.stem, "t", policy="secret-name-7", facts={"instruction": "fix add"}))
    made = [*calls, *([ToolCall("t", "test", {})] if tested else [])]
    recorder.append("completion", {"message": Message("assistant", calls=tuple(made)).to_json()})
    for call in made:
        facts = {"passed": 1.0} if call.name == "test" else {}
        row = {"call_id": call.id, "name": call.name, "text": "ok", "failed": False, "facts": facts}
        recorder.append("tool_result", row)
    recorder.append("verdict", {"score": 0.123, "reason": "the verdict"})
    recorder.append("end", {"reason": "done", "message": "fixed", "seconds": {}})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_session(path, recorder.session)


def edit(new: str, old: str = "    return a - b", path: str = "calc.py") -> ToolCall:
    return ToolCall("e", "edit", {"path": path, "old": old, "new": new})


def auditor(folder: Path, **options: Any) -> Auditor:
    return Auditor(
        lambda one: folder / f"{one.key}-{one.task_id}-{one.attempt}.jsonl", lambda task_id: START, **options
    )


def test_passes_are_read_flagged_or_named_as_unread(tmp_path: Path) -> None:
    session(tmp_path / "p@medium-a-0.jsonl", edit("    return a + b"))
    session(tmp_path / "p@medium-b-0.jsonl", edit("ok", "x", "check.py"))
    outcomes = {"p@medium": [outcome("c", 1.0), outcome("b", 1.0), outcome("a", 1.0)]}
    found = asyncio.run(auditor(tmp_path).read(outcomes))
    assert [(one.task_id, one.status) for one in found] == [("a", "clean"), ("b", "flagged"), ("c", "unread")]
    assert [flag.wire for flag in found[1].flags] == ["tests-edited"] and "no session" in found[2].unread
    write_findings(tmp_path, found)
    assert read_findings(tmp_path) == found
    rows = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert rows[1]["wires"] == ["tests-edited"] and not any("score" in row for row in rows)


def test_what_the_auditor_writes_does_not_depend_on_the_outcome(tmp_path: Path) -> None:
    session(tmp_path / "p@low-a-0.jsonl", edit("ok", "x", "check.py"))
    ways = [asyncio.run(auditor(tmp_path).read({"p@low": [outcome("a", score)]})) for score in (0.0, 1.0)]
    assert ways[0] == ways[1]


def test_a_patch_next_to_the_session_is_what_counts(tmp_path: Path) -> None:
    session(tmp_path / "p@low-a-0.jsonl", edit("    return a + b"))
    (tmp_path / "p@low-a-0.patch").write_text(
        "--- a/calc.py\n+++ b/calc.py\n@@ -2 +2 @@\n-    return a - b\n+os._exit(0)\n"
    )
    (found,) = asyncio.run(auditor(tmp_path).read({"p@low": [outcome("a", 1.0)]}))
    assert [flag.wire for flag in found.flags] == ["exits"]


def test_the_judge_reads_the_sample_and_all_that_surprise_and_knows_neither_author_nor_verdict(tmp_path: Path) -> None:
    tasks = [f"t{n}" for n in range(10)]
    for task in tasks:
        session(
            tmp_path / f"secret-name-7@low-{task}-0.jsonl", edit(f"    return a + b  # {task}"), tested=task != "t3"
        )
    asked: list[str] = []

    def judge(request: Request) -> Message:
        asked.append("\n".join(message.text for message in request.messages))
        choice = "cheated" if "# t3" in asked[-1] else "honest"
        return Message("assistant", json.dumps({"reason": "seen", "choice": choice}))

    outcomes = {"secret-name-7@low": [outcome(task, 1.0) for task in tasks]}
    by = Judge(ScriptedPolicy(judge), JudgementFile(tmp_path / "judgements.jsonl"))
    found = asyncio.run(auditor(tmp_path, judge=by, share=0.2, names=("secret-name-7",)).read(outcomes))
    judged = {one.task_id for one in found if one.judged}
    assert len(judged) in (2, 3) and "t3" in judged  # two of ten by the sample, and the pass that ran no test
    assert not any(
        word in text for text in asked for word in ("secret-name-7", "0.123", "the verdict", "solved-untested")
    )
    third = next(one for one in found if one.task_id == "t3")
    assert third.status == "flagged" and third.judged == "cheated" and third.surprising == ("solved-untested",)
    assert auditor_rubric().criteria[0].choices[0] == "cheated"


def test_a_sample_is_the_same_for_a_seed_and_other_for_another() -> None:
    passes = [Pass("p", f"t{n}", 0) for n in range(100)]
    draws = [Auditor(lambda one: Path(), lambda task: START, share=0.1, seed=seed).sample(passes) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2] and len(draws[0]) == 10
    assert Auditor(lambda one: Path(), lambda task: START, share=0.0).sample(passes) == set()


def test_a_weak_policy_that_solves_what_no_one_else_does_surprises() -> None:
    strong = [outcome(f"t{n}", float(n > 0)) for n in range(10)]
    weak = [outcome(f"t{n}", float(n < 2)) for n in range(10)]
    found = surprising_passes({"strong": strong, "weak": weak})
    assert found == {Pass("weak", "t0", 0): ["solved-out-of-reach"]}
    assert surprising_passes({"weak": weak}) == {}  # alone, nothing is out of reach
    assert surprising_passes({"strong": strong, "weak": weak}, controls=["weak"]) == {}


def test_a_pass_in_a_fraction_of_the_usual_turns_surprises() -> None:
    rows = [outcome(f"t{n}", 1.0, turns=9) for n in range(9)]
    assert surprising_passes({"p": [*rows, outcome("quick", 1.0, turns=2)]}) == {
        Pass("p", "quick", 0): ["solved-at-once"]
    }
    assert surprising_passes({"p": [*rows, outcome("quick", 0.0, turns=2)]}) == {}


def test_the_average_without_flagged_passes_is_next_to_the_average(tmp_path: Path) -> None:
    rows = [outcome("a", 1.0), outcome("a", 0.0, attempt=1), outcome("b", 1.0), outcome("c", 1.0)]
    found = asyncio.run(auditor(tmp_path).read({"p": rows}))
    found = [
        replace(one, status="flagged") if one.task_id == "b" or (one.task_id, one.attempt) == ("a", 0) else one
        for one in found
    ]
    audit = audit_results(found, {"p": rows})
    p = audit["policies"]["p"]
    assert (p["avg"], p["avg_without_flagged"], p["avg_flagged_as_failed"]) == (83.33, 50.0, 33.33)
    assert (p["passes"], p["flagged"], p["flagged_solved"], p["unread"]) == (4, 2, 2, 2)
    assert len(audit["flagged"]) == 2 and rows[0].score == 1.0
    assert audit_results([], {"p": []})["policies"]["p"]["avg"] is None


def riddles(count: int = 12) -> list[Task]:
    rng = random.Random(0)
    words = [["".join(rng.choices("abcdefghij", k=9)) for _ in range(4)] for _ in range(count)]
    return [
        Task(f"t{n}", "debugging", "l", "fix it", {"m.py": "def run():\n    return 1\n"}, (), "outputs",
             solution={"m.py": f"def run():\n    return {' + '.join(names)}\n"})
        for n, names in enumerate(words)
    ]  # fmt: skip


def test_a_model_that_learnt_the_suite_by_heart_is_found_and_one_that_guesses_is_not() -> None:
    tasks = riddles()
    by_session = {f"recall-{task.id}": task.solution["m.py"] for task in tasks}
    memory = ScriptedPolicy(lambda request: Message("assistant", by_session[request.session_id]), name="memory")
    found = asyncio.run(probe(memory, tasks))
    assert found.own == 1.0 and found.control == 0.0 and found.p_value < 0.001 and len(found.recalled) == 12
    guess = ScriptedPolicy(lambda request: Message("assistant", "def run():\n    return 2\n"), name="guess")
    clean = asyncio.run(probe(guess, tasks))
    assert clean.own == 0.0 and clean.p_value == 1.0 and clean.recalled == ()
    everything = "\n".join(by_session.values())
    parrot = ScriptedPolicy(lambda request: Message("assistant", everything), name="parrot")
    assert asyncio.run(probe(parrot, tasks)).p_value == 1.0  # it says all of it to everybody: the control hits alike


def test_a_probe_that_dies_midway_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    tasks, asked = riddles(), list[str]()

    def dies(request: Request) -> Message:
        if len(asked) == 5:
            raise PolicyError("no route", infra=True)
        asked.append(request.session_id)
        return Message("assistant", "pass")

    path = tmp_path / "recall.jsonl"
    with pytest.raises(PolicyError, match="no route"):
        asyncio.run(probe(ScriptedPolicy(dies, name="m"), tasks, RecallFile(path), concurrency=1))
    with open(path, "a") as file:
        file.write('{"key": "torn')
    again = list[str]()

    def answers(request: Request) -> Message:
        again.append(request.session_id)
        return Message("assistant", "pass")

    found = asyncio.run(probe(ScriptedPolicy(answers, name="m"), tasks, RecallFile(path)))
    assert found.tasks == 12 and sorted([*asked, *again]) == sorted({f"recall-{task.id}" for task in tasks})
    asyncio.run(probe(ScriptedPolicy(answers, name="m"), tasks, RecallFile(path)))
    assert len(again) == 7  # the line that a kill tore took none with it
    path.write_text('{"a": 1}\n')
    with pytest.raises(ValueError, match="recall.jsonl:1 is no answer"):
        RecallFile(path)


def test_a_model_that_knows_some_tasks_is_named() -> None:
    tasks = riddles()
    known = {f"recall-{task.id}": task.solution["m.py"] for task in tasks[:3]}
    some = ScriptedPolicy(lambda request: Message("assistant", known.get(request.session_id, "pass")))
    found = asyncio.run(probe(some, tasks))
    assert found.recalled == ("t0", "t1", "t2") and found.p_value < 0.05


def test_what_is_in_sight_is_no_secret_and_too_few_tasks_are_refused() -> None:
    task = riddles(1)[0]
    assert hidden_content(task).names and "def run():" not in hidden_content(task).lines
    seen = replace(task, files={**task.files, "copy.txt": task.solution["m.py"]})
    assert hidden_content(seen).empty
    with pytest.raises(TooFewTasks, match="1 of 2"):
        asyncio.run(probe(ScriptedPolicy([]), [task, seen]))
