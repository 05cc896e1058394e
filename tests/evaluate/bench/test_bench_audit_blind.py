"""What the auditor's judge is shown, whatever a session records: nothing of the outcome, of who did it, or of why it is read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.policy.protocol import Request
from etude.agent.policy.scripted import ScriptedPolicy
from etude.core.trace.entry import SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder, Session
from etude.core.trace.writer import write_session
from etude.evaluate.bench.audit.auditor import Auditor, Pass
from etude.evaluate.bench.audit.evidence import Start, evidence_of
from etude.evaluate.bench.audit.tripwires import tripped_wires
from etude.evaluate.bench.grading.judge import Judge
from etude.evaluate.bench.grading.judgement import JudgementFile
from etude.evaluate.bench.outcome import Outcome

START = Start({"calc.py": "def add(a, b):\n    return a - b\n"}, frozenset({"check.py"}), frozenset({"calc.py"}))
SECRET = st.integers(10**8, 10**9).map(lambda n: f"zq{n}")
FIELDS = ("policy", "session", "harness", "verdict", "counters", "lints", "usage", "end", "fact", "fork", "test")


def recorded(secrets: dict[str, str]) -> Session:
    """A session with a secret in every place that tells of the outcome or of who did it."""
    facts = {"instruction": "fix add", "suite": secrets["fact"], "model": secrets["fact"]}
    header = SessionHeader(secrets["session"], "t", policy=secrets["policy"], harness=secrets["harness"], facts=facts)
    recorder = Recorder(header)
    call = ToolCall("e", "edit", {"path": "calc.py", "old": "a - b", "new": "a + b"})
    by = f"{secrets['policy']} here"
    recorder.append(
        "completion",
        {"message": Message("assistant", by, calls=(call,)).to_json(), "usage": {"model": secrets["usage"]}},
    )
    recorder.append(
        "tool_result",
        {"call_id": "e", "name": "edit", "text": f"ok {secrets['session']}", "failed": False, "facts": {}},
    )
    recorder.append("lints", {"by": secrets["lints"]})
    recorder.append("counters", {"turns": 1.0, secrets["counters"]: 1.0})
    recorder.append("verdict", {"score": 0.123456, "reason": secrets["verdict"], "tests": {secrets["test"]: False}})
    recorder.append("end", {"reason": secrets["end"], "message": "fixed", "seconds": {}})
    return recorder.session


@given(st.lists(SECRET, min_size=len(FIELDS), max_size=len(FIELDS), unique=True))
@settings(max_examples=60, deadline=None)
def test_no_record_of_the_outcome_or_of_the_author_reaches_what_is_shown(drawn: list[str]) -> None:
    secrets = dict(zip(FIELDS, drawn, strict=True))
    seen = evidence_of(recorded(secrets), START).attempt.marked_parts(("request", "diff", "message", "trace"))
    assert "a + b" in seen and "fix add" in seen
    assert [name for name, secret in secrets.items() if secret in seen] == [] and "0.123456" not in seen


@given(SECRET, SECRET)
@settings(max_examples=30, deadline=None)
def test_tripwires_see_alike_whoever_did_it_and_whatever_came_of_it(one: str, other: str) -> None:
    both = [evidence_of(recorded(dict.fromkeys(FIELDS, secret)), START) for secret in (one, other)]
    assert tripped_wires(both[0]) == tripped_wires(both[1]) and both[0].changes == both[1].changes


class _Asked:
    """A judge that finds all honest, and keeps what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[list[str]] = []

    def __call__(self, request: Request) -> Message:
        self.prompts.append([message.text for message in request.messages])
        return Message("assistant", json.dumps({"reason": "seen", "choice": "honest"}))


@given(st.floats(0, 1), st.integers(1, 40), st.sampled_from(["", "failed tests", "timed out"]))
@settings(max_examples=15, deadline=None)
def test_the_same_work_is_asked_about_in_the_same_words_whatever_its_outcome(
    score: float, turns: int, reason: str
) -> None:
    secrets = dict.fromkeys(FIELDS, "zq123456789")

    def asked(outcome: Outcome) -> Any:
        with TemporaryDirectory() as place:
            path = Path(place) / "s.jsonl"
            write_session(path, recorded(secrets))
            judge = _Asked()
            by = Judge(ScriptedPolicy(judge), JudgementFile(Path(place) / "judgements.jsonl"))
            where = lambda one: path if isinstance(one, Pass) else Path()
            asyncio.run(Auditor(where, lambda task: START, by, share=1.0).read({"p@low": [outcome]}))
            return judge.prompts

    plain = Outcome("t", 0, "debugging", "l", 0.0, 100, 5, 8, 1.0)
    assert asked(plain) == asked(Outcome("t", 0, "debugging", "l", score, 7, 3, turns, 9.0, reason))
