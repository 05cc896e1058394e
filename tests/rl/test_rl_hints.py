"""Hints are read from what happened, and lie where the flagged turn's tokens are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from etude.agent.chat.byte_tokenizer import byte_tokenizer
from etude.agent.chat.nano import NanoRenderer
from etude.agent.metrics import facts as fact
from etude.agent.metrics.of_session import counters_of
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.message import CUT_OFF, Message, ToolCall
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Recorder
from etude.rl.hints.rules import choose_turns, generation_ids, hint_ids, hints_of, kept_hints, places

RENDERER = NanoRenderer(byte_tokenizer())
SCHEMAS = [
    {"function": {"name": "read", "parameters": {"properties": {"path": {}, "first": {}}, "required": ["path"]}}},
    {"function": {"name": "edit", "parameters": {"properties": {"path": {}}, "required": ["path"]}}},
    {"function": {"name": "todo", "parameters": {"properties": {"text": {}}, "required": ["text"]}}},
    {"function": {"name": "shell", "parameters": {"properties": {"command": {}}}}},
]


class Played:
    """A session, turn by turn."""

    def __init__(self):
        self.recorder = Recorder(SessionHeader("s", harness_facts={"schemas": SCHEMAS}))
        self.recorder.append("message", {"role": "user", "text": "go"})
        self.calls = 0

    def turn(self, name=None, problem=None, text="", facts=None, failed=False, answer="ok", **arguments):
        calls = (ToolCall(str(self.calls), name, arguments),) if name else ()
        message = Message("assistant", text, calls=calls, problem=problem)
        entry = self.recorder.append("completion", {"message": message.to_json()})
        if name:
            data = {"call_id": str(self.calls), "text": answer, "failed": failed, "facts": facts or {}}
            self.recorder.append("tool_result", data)
            self.calls += 1
        return entry

    @property
    def hints(self):
        return [(hint.entry, hint.kind) for hint in hints_of(self.recorder.session)]

    @property
    def texts(self):
        return [hint.text for hint in hints_of(self.recorder.session)]


REFUSED = {fact.MALFORMED: 1.0}


def test_an_unknown_tool_is_shown_the_tools_that_there_are():
    played = Played()
    at = played.turn("grep", facts=REFUSED, failed=True, pattern="x")
    assert played.hints == [(at, "unknown_tool")]
    assert played.texts == ["Reminder: Available tools: read, edit, todo, shell."]


def test_wrong_arguments_are_shown_the_right_ones_and_the_objection():
    played = Played()
    at = played.turn("read", facts=REFUSED, failed=True, answer="read: unknown argument\n file", file="x")
    assert played.hints == [(at, "invalid_arguments")]
    assert played.texts[0] == "Reminder: read takes path, first (may be left out). Not so: read: unknown argument file"


def test_a_call_that_failed_in_its_work_is_not_flagged():
    played = Played()
    played.turn("edit", failed=True, answer="no such file", path="a.py")
    assert played.hints == []


def test_an_answer_that_can_not_be_read_is_flagged_and_one_that_was_cut_off_is_not():
    played = Played()
    played.turn(problem=CUT_OFF)
    at = played.turn(problem="a call has no end")
    assert played.hints == [(at, "malformed_turn")]


def test_open_todos_flag_the_turn_that_ends_the_work():
    played = Played()
    call = ToolCall("t", "todo", {"text": "add write tests"})
    played.recorder.append("completion", {"message": Message("assistant", calls=(call,)).to_json()})
    played.recorder.append("tool_result", {"call_id": "t", "text": "ok", "failed": False, "facts": {}})
    assert played.hints == []
    at = played.turn(text="all done")
    assert played.hints == [(at, "unfinished_todos")] and "write tests" in played.texts[0]


def test_a_file_read_again_is_flagged_unless_it_may_have_changed():
    played = Played()
    played.turn("read", path="a.py")
    at = played.turn("read", path="a.py")
    played.turn("read", path="a.py", first=3)
    played.turn("edit", facts={fact.EDITS: 1.0}, path="a.py")
    played.turn("read", path="a.py")
    played.turn("shell", command="make")
    played.turn("read", path="a.py")
    assert played.hints == [(at, "repeated_read")] and "a.py" in played.texts[0]


@given(st.lists(st.tuples(st.sampled_from(["read", "edit", "shell"]), st.sampled_from("ab")), max_size=20))
def test_reads_are_flagged_exactly_where_the_counter_counts_them(calls):
    played = Played()
    for name, path in calls:
        played.turn(name, facts={fact.EDITS: 1.0} if name == "edit" else {}, path=path)
    assert len(played.hints) == counters_of(played.recorder.session)["repeated_reads"]


def test_a_clean_session_has_no_hints():
    played = Played()
    played.turn("read", path="a.py")
    played.turn(text="done")
    assert played.hints == []


@st.composite
def trees(draw):
    """A session of random turns, self-summaries and forks, with tokens."""
    recorder = Recorder(SessionHeader("s"))
    prompt = generation_ids(RENDERER)
    root = parent = recorder.append("message", {"role": "user", "text": ""}, tokens=EntryTokens([1, 2, 3]))
    for kind in draw(st.lists(st.sampled_from(["turn", "turn", "result", "summary", "fork"]), max_size=12)):
        if kind == "turn":
            count = draw(st.integers(1, 4))
            lead = [9] * draw(st.integers(0, 2)) + prompt
            tokens = EntryTokens([*lead, *range(20, 20 + count)], len(lead), [-1.0] * count, [0] * count)
            parent = recorder.append("completion", {}, parent=parent, tokens=tokens)
        elif kind == "result":
            parent = recorder.append("tool_result", {}, parent=parent, tokens=EntryTokens([5, 6]))
        else:
            parent = recorder.append(kind, {}, parent=root if kind == "summary" else None, tokens=EntryTokens([7]))
    return recorder.session


@given(trees())
def test_places_are_those_of_the_segments(session):
    segments, found = session.segments(), places(session)
    taken = [np.zeros(len(segment), bool) for segment in segments]
    for entry, place in found.items():
        tokens = session.entries[entry].tokens
        assert segments[place.segment].ids[place.lead : place.stop].tolist() == tokens.ids
        assert place.start - place.lead == tokens.lead
        taken[place.segment][place.start : place.stop] = True
    assert all((mine == segment.sampled).all() for mine, segment in zip(taken, segments, strict=True))


def test_a_hint_is_between_what_the_turn_had_seen_and_its_generation_prompt():
    recorder = Recorder(SessionHeader("s", harness_facts={"schemas": SCHEMAS}))
    request, prompt = RENDERER.render_message(Message("user", "go")), generation_ids(RENDERER)
    parent = recorder.append("message", {"role": "user", "text": "go"}, tokens=EntryTokens(request))
    message = Message("assistant", "x", problem="it is no call")
    said = RENDERER.answer(Message("assistant", "x"))
    tokens = EntryTokens([*prompt, *said], len(prompt), [-1.0] * len(said), [0] * len(said))
    recorder.append("completion", {"message": message.to_json()}, parent=parent, tokens=tokens)
    (row,) = kept_hints(recorder.session, RENDERER)
    (segment,) = recorder.session.segments()
    ids = segment.ids.tolist()
    hinted = ids[: row["at"]] + row["ids"] + ids[row["at"] :]
    conversation = [Message("user", "go"), Message("user", row["text"]), Message("assistant", "x")]
    assert hinted == RENDERER.render(conversation, (), generation=False)
    assert ids[row["start"] : row["stop"]] == said
    assert row["ids"] == hint_ids(RENDERER, row["text"])


def test_a_step_takes_first_flags_before_second_ones():
    rows = lambda *names: {"hints": [{"name": name} for name in names]}
    rollouts = [Rollout(str(i), "t", 0, [], info=info) for i, info in enumerate([rows("a", "b", "c"), {}, rows("d")])]
    assert [hint["name"] for _, hint in choose_turns(rollouts, 3)] == ["a", "d", "b"]
    assert len(choose_turns(rollouts, 99)) == 4
