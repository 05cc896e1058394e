"""Counters are a pure function of a session: of what our harness recorded, of a part of it, and of other agents' logs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.harness.presets.preset import preset
from etude.agent.importers.read import read_foreign
from etude.agent.metrics.facts import command, kind
from etude.agent.metrics.of_session import counters_of, last_test, todos_of, tool_names
from etude.core.trace.change import TextChange
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder, Session

FOREIGN = Path(__file__).parents[1] / "importers" / "data"


class SessionScene:
    """A short session."""

    def __init__(self, **facts: Any) -> None:
        self.recorder = Recorder(SessionHeader("s", harness_facts=facts))
        self.calls = 0

    def turn(self, *calls: tuple[str, dict[str, Any]], text: str = "", **data: Any) -> list[str]:
        made = tuple(ToolCall(f"c{self.calls + n}", name, arguments) for n, (name, arguments) in enumerate(calls))
        self.calls += len(made)
        message = Message("assistant", text, calls=made)
        self.recorder.append("completion", {"message": message.to_json(), **data})
        return [call.id for call in made]

    def answer(self, call_id: str, text: str = "ok", *, failed: bool = False, **data: Any) -> None:
        self.recorder.append("tool_result", {"call_id": call_id, "name": "", "text": text, "failed": failed, **data})

    def one(self, name: str, *, failed: bool = False, facts: dict[str, float] | None = None, **arguments: Any) -> None:
        (call_id,) = self.turn((name, arguments))
        self.answer(call_id, failed=failed, **({} if facts is None else {"facts": facts}))

    @property
    def counts(self) -> dict[str, float]:
        return counters_of(self.recorder.session)


@pytest.mark.parametrize("path", sorted(FOREIGN.iterdir()), ids=lambda path: path.stem)
def test_every_importers_sessions_have_counters(path: Path) -> None:
    session = read_foreign(path)
    counts = counters_of(session)
    assert all(math.isfinite(value) for value in counts.values())
    assert counts["turns"] == len(session.of("completion")) > 0
    assert 0 < counts["calls"] <= sum(len(e.data["message"].get("calls", ())) for e in session.of("completion"))
    assert counts["message_tokens"] + counts["call_tokens"] > 0
    assert {name for name in counts if name.startswith("calls_")} == {f"calls_{name}" for name in tool_names(session)}


def test_calls_of_other_agents_are_read_by_their_names() -> None:
    scene = SessionScene()
    scene.one("Read", file_path="a.py")
    scene.one("Edit", file_path="a.py", old_string="x", new_string="y  # wait, no")
    scene.one("Edit", file_path="b.py", old_string="x", new_string="y")
    scene.one("Edit", file_path="b.py", old_string="q", new_string="y", failed=True)
    scene.one("Bash", command="pytest -q", failed=True)
    scene.one("shell", command=["bash", "-lc", "cargo test"])
    counts = scene.counts
    assert (counts["edits"], counts["edits_without_read"], counts["thought_comments"]) == (2, 1, 1)
    assert (counts["tests_run"], counts["tests_passed"], counts["edits_untested"]) == (2, 1, 0)
    assert (counts["shell_calls"], counts["failed_calls"], counts["calls_Edit"]) == (2, 2, 3)
    assert command(ToolCall("c", "shell", {"command": ["ls", "my file"]})) == "ls 'my file'"


def test_what_the_harness_recorded_is_preferred_to_what_names_tell() -> None:
    scene = SessionScene()
    scene.one("Edit", facts={}, path="a.py")
    scene.one("frobnicate", facts={"edits": 1.0, "passed": 1.0, "malformed": 1.0})
    counts = scene.counts
    assert (counts["edits"], counts["tests_passed"], counts["malformed_calls"]) == (1, 1, 1)
    assert last_test(scene.recorder.session) == "passed"


def test_tokens_are_the_recorded_ones_else_estimated_from_the_text() -> None:
    scene = SessionScene()
    scene.turn(text="x" * 40, spoken={"thinking": 3, "calling": 2, "message": 1}, read=7)
    scene.turn(text="x" * 40)
    scene.answer("unknown", "x" * 40)
    session = scene.recorder.session
    scene.recorder.append(
        "tool_result", {"call_id": "c9", "name": "", "text": "", "failed": False}, tokens=EntryTokens([1, 2, 3], 3)
    )
    counts = counters_of(session)
    assert (counts["thinking_tokens"], counts["call_tokens"], counts["message_tokens"]) == (3, 2, 11)
    assert counts["tool_output_tokens"] == 7 + 11 + 3


def test_a_valid_done_counts_once_and_what_stands_behind_it_never() -> None:
    scene = SessionScene(schemas=[{"function": {"name": name}} for name in ("done", "test")])
    ids = scene.turn(("test", {}), ("done", {"message": "all tests pass"}), ("test", {}))
    scene.answer(ids[0], facts={"passed": 1.0})
    assert (scene.counts["calls"], scene.counts["green_claims_unbacked"]) == (2, 0)
    for call_id in ids[1:]:  # what a further request finds
        scene.answer(call_id, facts={})
    assert (scene.counts["calls"], scene.counts["calls_done"], scene.counts["calls_test"]) == (2, 1, 1)
    scene.one("done", failed=True, facts={"malformed": 1.0})
    assert (scene.counts["calls_done"], scene.counts["malformed_calls"]) == (2, 1)


def test_a_self_summary_is_no_turn() -> None:
    scene = SessionScene()
    scene.recorder.append("message", Message("user", "summarize", summary=True).to_json())
    scene.turn(text="half done", spoken={"thinking": 1, "calling": 0, "message": 4})
    scene.turn(text="go on")
    assert (scene.counts["turns"], scene.counts["summaries"], scene.counts["summary_tokens"]) == (1, 1, 5)


@pytest.mark.parametrize(
    ("message", "finish", "broken"),
    [
        (Message("assistant", "half done"), "stop", 0),
        (Message("assistant", "half done", calls=(ToolCall("c", "test", {}),)), "stop", 0),  # its words are carried on
        (Message("assistant", " \n"), "stop", 1),
        (Message("assistant", "", calls=(ToolCall("c", "test", {}),)), "stop", 1),
        (Message("assistant", "half", problem="no end marker"), "stop", 1),
        (Message("assistant", "half"), "length", 1),
    ],
)
def test_a_summary_that_says_nothing_or_not_all_is_counted(message: Message, finish: str, broken: int) -> None:
    scene = SessionScene()
    scene.recorder.append("message", Message("user", "summarize", summary=True).to_json())
    scene.recorder.append("completion", {"message": message.to_json(), "finish": finish})
    assert (scene.counts["summaries"], scene.counts["broken_summaries"]) == (1, broken)


def test_an_undo_makes_the_change_smaller() -> None:
    scene = SessionScene()
    scene.one("edit", facts={"edits": 1.0})
    number = scene.recorder.append("edit", TextChange("a.py", "x\n", "x\ny\n").to_entry("c0"))
    assert scene.counts["diff_added"] == 1
    scene.recorder.append("undo", {"edits": [number], "paths": ["a.py"], "by": "user"})
    assert (scene.counts["diff_files"], scene.counts["diff_added"], scene.counts["edits"]) == (0, 0, 1)


@pytest.mark.parametrize("shape", ["todos", "plan", "text"])
def test_to_dos_are_those_that_the_calls_left(shape: str) -> None:
    scene = SessionScene()
    if shape == "text":
        for text in ("add one", "add two", "done one", "done nothing"):
            scene.one("todo", text=text, failed=text == "done nothing")
    else:
        label = {"todos": "content", "plan": "step"}[shape]
        scene.one("w", **{shape: [{label: "one", "status": "pending"}, {label: "two", "status": "in_progress"}]})
        scene.one("w", **{shape: [{label: "never", "status": "pending"}]}, failed=True)
        scene.one("w", **{shape: [{"id": "1", label: "one", "status": "completed"}]}, merge=True)
    assert todos_of(scene.recorder.session).open == ["two"]
    assert (scene.counts["todos_opened"], scene.counts["todos_unfinished"]) == (2, 1)
    scene.one("w", todos=[])
    assert scene.counts["todos_unfinished"] == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["status", "id", "content", "text"]), inner)
    ),
    max_leaves=6,
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["todo", "Edit", "Bash", "done", "x"]),
            st.dictionaries(st.sampled_from(["todos", "plan", "text", "command", "path", "new"]), JSON, max_size=3),
            st.sampled_from(["answered", "failed", "open", "twice"]),
        ),
        max_size=6,
    )
)
def test_no_log_breaks_the_counters(calls: list[tuple[str, dict[str, Any], str]]) -> None:
    scene = SessionScene()
    for name, arguments, then in calls:
        (call_id,) = scene.turn((name, arguments))
        for _ in range({"open": 0, "twice": 2}.get(then, 1)):
            scene.answer(call_id, failed=then == "failed")
    counts = scene.counts
    assert counts["turns"] == len(calls) and counts["calls"] <= len(calls)
    assert all(math.isfinite(value) for value in counts.values())
    half = Session(scene.recorder.session.header, scene.recorder.session.entries[: len(calls)])
    assert counters_of(half)["calls"] <= counts["calls"]


def test_names_that_presets_give_are_known_for_what_they_do() -> None:
    for name in ("nano", "full", "search_replace", "patch", "minimal"):
        chosen = preset(name)
        assert {tool: kind(tool) for tool in chosen.tools} == {tool: kind(chosen.does(tool)) for tool in chosen.tools}
