"""In every family's chat format a hint is tokens behind all that the turn had seen, and the turn is sampled behind it as it always is."""

import pytest

from etude.agent.chat.families import FAMILIES
from etude.core.trace.entry import EntryTokens, SessionHeader
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.session import Recorder
from etude.rl.hints.rules import Hint, HintNotRenderable, generation_ids, hint_ids, place_hints

REQUEST, HINT = Message("user", "fix the tally"), "Reminder: Available tools: read, edit."
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOLS = [{"type": "function", "function": {"name": "read", "description": "reads", "parameters": SCHEMA}}]

# Two requests in a row are one turn there, so a second one rewrites what stood before.
REWRITES = ("gemma-3",)
families = pytest.mark.parametrize("family", [family.name for family in FAMILIES if family.name not in REWRITES])


@pytest.mark.parametrize("family", REWRITES)
def test_a_format_that_appends_no_message_is_refused_for_hints(family, make_renderer):
    with pytest.raises(HintNotRenderable, match=f"{family} does not append a message"):
        hint_ids(make_renderer(family), HINT)


@families
def test_a_hint_is_what_the_format_itself_would_have_put_there(family, make_renderer):
    renderer = make_renderer(family)
    plain = renderer.render([REQUEST], ())
    prompt = generation_ids(renderer)
    assert prompt or family == "mistral"  # whose [/INST] ends the request
    assert plain[len(plain) - len(prompt) :] == prompt
    hinted = plain[: len(plain) - len(prompt)] + hint_ids(renderer, HINT) + prompt
    assert hinted == renderer.render([REQUEST, Message("user", HINT)], ())


@families
def test_behind_a_tools_answer_the_hint_is_followed_by_the_whole_generation_prompt(family, make_renderer):
    renderer = make_renderer(family)
    prompt = generation_ids(renderer)
    said = renderer.answer(Message("assistant", calls=(ToolCall("call_0", "read", {"path": "a.py"}),)))
    turn = renderer.parse(said, tools=TOOLS)
    bridge = renderer.bridge(turn, said, [Message("tool", "text", call_id=turn.calls[0].id)], TOOLS)
    assert bridge is not None
    end = renderer.answer(Message("assistant", "done"))
    recorder = Recorder(SessionHeader("s"))
    parent = recorder.append(
        "message", {"role": "user"}, tokens=EntryTokens(renderer.render([REQUEST], TOOLS)[: -len(prompt) or None])
    )
    for lead, ids in ((prompt, said), (bridge.ids, end)):
        count = len(ids)
        tokens = EntryTokens([*lead, *ids], len(lead), [-1.0] * count, [0] * count)
        parent = recorder.append("completion", {}, parent=parent, tokens=tokens)
    (row,) = place_hints([Hint(parent, "unknown_tool", HINT)], recorder.session, renderer)
    ids = recorder.session.segments()[0].ids.tolist()
    hinted = ids[: row["at"]] + row["ids"] + ids[row["at"] :]
    assert ids[row["start"] : row["stop"]] == end
    tail = [*hint_ids(renderer, HINT), *prompt, *end]
    assert hinted[-len(tail) :] == tail and hinted[: row["at"]] == ids[: row["at"]]
