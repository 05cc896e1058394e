"""Real families over small tokenizers: turns read back as said, prompts only grow, content is inert, every breach is typed."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.agent.chat import trajectories
from etude.agent.chat.check import essential_fields, grow_session
from etude.agent.chat.families import FAMILIES
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.renderer import RenderError
from etude.core.trace.message import CUT_OFF, Message, ToolCall

TOOLS = trajectories.TOOLS
ASKED = [Message("user", "go")]


def markers(renderer: FamilyRenderer) -> list[str]:
    return [*renderer.family.markers]


def turns(renderer: FamilyRenderer) -> list[Message]:
    return trajectories.turns(thinks=renderer.family.thinks, markers=markers(renderer))


def test_every_mock_turn_reads_back_as_it_was_said(real: FamilyRenderer) -> None:
    for made, turn in enumerate(turns(real)):
        ids = real.answer(turn, first_call=made)
        back = real.parse(ids, tools=TOOLS, first_call=made)
        assert essential_fields(back) == essential_fields(turn)
        assert ids[-1] in real.stop_ids


@pytest.mark.sample(15)
@settings(max_examples=25)
@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    value=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    spelt=st.integers(0, 40),
)
def test_any_text_survives_as_an_argument(real: FamilyRenderer, text: str, value: str, spelt: int) -> None:
    words = markers(real)
    argument = f"{value}{words[spelt % len(words)]}\n  {text}x"
    call = ToolCall("c0", "write_file", {"path": "p", "text": argument})
    back = real.parse(real.answer(Message("assistant", "ok", calls=(call,))), tools=TOOLS)
    assert back.problem is None
    assert [c.arguments for c in back.calls] == [{"path": "p", "text": argument}]


def test_within_a_tool_cycle_the_prompt_only_grows_and_ends_as_the_family_renders_it(real: FamilyRenderer) -> None:
    steps = grow_session(real, turns(real), TOOLS, markers(real))
    assert len(steps) >= 6
    for (before, _, _), (after, _, _) in zip(steps, steps[1:], strict=False):
        assert after[: len(before)] == before
    for _, whole, suffix in steps:
        assert any(whole[-len(part) :] == part for part in (suffix, suffix[1:], suffix[2:]))


@pytest.mark.parametrize(
    "name", ["qwen3-coder", "qwen3.5", "qwen3.6", "kimi-k2", "kimi-k2.5", "deepseek-v3", "deepseek-v3.1"]
)
def test_a_grown_prompt_is_the_whole_rendered_at_once(make_renderer: Callable[..., FamilyRenderer], name: str) -> None:
    """Where the prompt opens the thinking, a turn that thinks nothing spells its line breaks apart: those are left out."""
    renderer = make_renderer(name)
    answers = [turn for turn in turns(renderer) if turn.thinking or not renderer.family.thinks]
    for held, whole, _ in grow_session(renderer, answers, TOOLS, markers(renderer)):
        assert held == whole


def test_a_bridge_says_how_much_each_message_took(real: FamilyRenderer) -> None:
    turn = turns(real)[5]
    ids = real.answer(turn)
    results = [Message("tool", word * 50, call_id=call.id) for word, call in zip("abc", turn.calls, strict=True)]
    bridge = real.bridge(turn, ids, results, TOOLS)
    assert bridge is not None and len(bridge.taken) == 3
    assert all(n >= 1 for n in bridge.taken) and sum(bridge.taken) <= len(bridge.ids)


def test_a_new_request_forks_where_the_family_drops_old_thinking(make_renderer: Callable[..., FamilyRenderer]) -> None:
    new = [Message("user", "and now?")]
    for name in ("qwen3", "kimi-k2.5", "glm-4.5", "gpt-oss", "minimax-m2"):
        turn = Message("assistant", "done", "I thought")
        ids = make_renderer(name).answer(turn)
        assert make_renderer(name).bridge(turn, ids, new, TOOLS) is None
        assert make_renderer(name, "all").bridge(turn, ids, new, TOOLS) is not None


def test_the_query_for_a_summary_stays_in_the_tool_cycle(real: FamilyRenderer) -> None:
    turn = turns(real)[3]
    ids = real.answer(turn)
    new = [Message("tool", "ok", call_id=turn.calls[0].id), Message("user", "Summarize.", summary=True)]
    assert real.bridge(turn, ids, new, TOOLS) is not None


def test_a_turn_that_was_cut_off_is_closed_by_the_bridge(real: FamilyRenderer) -> None:
    ids = real.answer(Message("assistant", "a long answer, cut"))[:-1]
    turn = real.parse(ids, tools=TOOLS)
    assert turn.problem == CUT_OFF and turn.calls == ()
    bridge = real.bridge(turn, ids, [Message("tool", "malformed: cut off")], TOOLS)
    assert bridge is not None and len(bridge.ids) > 4


def test_content_never_becomes_a_marker(real: FamilyRenderer) -> None:
    known = {*real._tokenizer.added.values()}
    text = trajectories.spellings([*real._tokenizer.added])
    for role in ("system", "user", "tool"):
        messages = [*ASKED, Message("assistant", "x"), Message(role, "y")] if role != "system" else [Message(role, "y")]
        plain = real.render([*messages, *ASKED], TOOLS)
        forged = real.render([*messages[:-1], Message(role, text), *ASKED], TOOLS)
        assert [i for i in forged if i in known] == [i for i in plain if i in known]
        shown = real._tokenizer.decode(forged)
        assert text in shown or json.dumps(text)[1:-1] in shown  # Llama 3.1 quotes results


def test_tools_can_not_forge_markers_either(real: FamilyRenderer) -> None:
    evil = trajectories._tool("t", {"x": {"type": "string", "description": markers(real)[0]}})
    plain = trajectories._tool("t", {"x": {"type": "string", "description": "y"}})
    known = {*real._tokenizer.added.values()}
    ids = [[i for i in real.render(ASKED, [tool]) if i in known] for tool in (evil, plain)]
    assert ids[0] == ids[1]


def test_token_kinds_add_up_and_thinking_is_distinguished(real: FamilyRenderer) -> None:
    for turn in turns(real):
        ids = real.answer(turn)
        kinds = real.count(ids)
        assert kinds.thinking + kinds.calling + kinds.message == len(ids)
        assert (kinds.calling > 0) == bool(turn.calls)
        if turn.thinking:
            assert kinds.thinking >= len(real._tokenizer.encode("Let me look.")) - 1


def test_ids_of_calls_stay_unique_when_a_model_counts_again(make_renderer: Callable[..., FamilyRenderer]) -> None:
    kimi = make_renderer("kimi-k2")
    ids = kimi.answer(Message("assistant", "", calls=(ToolCall("x", "list_todos", {}),)))
    first, later = kimi.parse(ids, first_call=0), kimi.parse(ids, first_call=5)
    assert first.calls[0].id == "functions.list_todos:0" and later.calls[0].id == "functions.list_todos:0#5"
    bridge = kimi.bridge(later, ids, [Message("tool", "none", call_id=later.calls[0].id)], TOOLS)
    assert bridge is not None and "## Return of functions.list_todos:0\n" in kimi._tokenizer.decode(bridge.ids)


def test_effort_is_rendered_where_the_family_has_a_field(make_renderer: Callable[..., FamilyRenderer]) -> None:
    for name, words in (("gpt-oss", "Reasoning: high"), ("glm-5.3", "Reasoning Effort: Max")):
        renderer = make_renderer(name).at_effort("high")
        assert words in renderer._tokenizer.decode(renderer.render(ASKED, ()))
        assert renderer.fingerprint != make_renderer(name).fingerprint
    assert make_renderer("kimi-k2").at_effort("high") is make_renderer("kimi-k2")


def test_what_no_format_can_hold_is_refused(real: FamilyRenderer) -> None:
    with pytest.raises(RenderError, match="only an assistant message may"):
        real.render([Message("user", "x", calls=(ToolCall("c", "t", {}),))], ())
    with pytest.raises(RenderError, match="answers as the assistant"):
        real.answer(Message("user", "x"))


def test_thinking_of_a_running_tool_cycle_is_kept(make_renderer: Callable[..., FamilyRenderer]) -> None:
    for name in ("qwen3", "qwen3.5", "kimi-k2.5", "glm-4.5", "glm-5", "minimax-m2", "gpt-oss"):
        renderer = make_renderer(name)
        answers = [turn for turn in turns(renderer) if turn.calls and turn.thinking][:3]
        held, _, _ = grow_session(renderer, answers, TOOLS, markers(renderer))[-1]
        assert renderer._tokenizer.decode(held).count("Let me look.") == 3, name


def test_vocabulary_names_every_id(real: FamilyRenderer) -> None:
    words: list[Any] = real.vocabulary()
    assert len(words) == real._tokenizer.size and all(words)
    assert all(words[number] == marker for marker, number in real._tokenizer.added.items())


def test_tools_are_reported_to_families_whose_template_leaves_it_to_the_caller(
    make_renderer: Callable[..., FamilyRenderer],
) -> None:
    for name in ("deepseek-v3", "deepseek-r1", "deepseek-v3.1"):
        renderer = make_renderer(name)
        text = renderer._tokenizer.decode(renderer.render([Message("system", "Be brief."), *ASKED], TOOLS))
        assert text.startswith("<｜begin▁of▁sentence｜>Be brief.\n\n## Tools\n")
        assert "### read_file\nDescription: Mock read_file.\n\nParameters: {" in text


@pytest.mark.parametrize("name", [family.name for family in FAMILIES])
def test_every_family_declares_its_tools(make_renderer: Callable[..., FamilyRenderer], name: str) -> None:
    renderer = make_renderer(name)
    text = renderer._tokenizer.decode(renderer.render(ASKED, TOOLS))
    assert all(tool["function"]["name"] in text and "Mock" in text for tool in TOOLS)


SCHEMAS = st.recursive(
    st.sampled_from([{}, {"description": "any value"}, {"type": "string"}, {"enum": ["a"]}, {"default": 1}]),
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "array", "items": one}, inner),
        st.builds(lambda one: {"properties": {"x": one}, "additionalProperties": one}, inner),
        st.builds(lambda one, key: {key: [one, {"type": "null"}]}, inner, st.sampled_from(["anyOf", "oneOf", "allOf"])),
    ),
    max_leaves=4,
)


@pytest.mark.sample(15)
@settings(max_examples=40)
@given(schema=SCHEMAS)
def test_a_tool_with_a_value_of_any_kind_can_be_declared(real: FamilyRenderer, schema: dict[str, Any]) -> None:
    parameters = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    tool = {"type": "function", "function": {"name": "run", "description": "d", "parameters": parameters}}
    assert len(real.render(ASKED, [tool])) > len(real.render(ASKED, []))


def test_system_messages_may_stand_anywhere(real: FamilyRenderer) -> None:
    """Agents say rules in several of them, and reminders between the turns."""
    talk = [Message("system", "rule"), Message("system", "other"), *ASKED, Message("system", "note")]
    text = real._tokenizer.decode(real.render(talk, []))
    assert text.index("rule") < text.index("other") < text.index("note")
    turn = Message("assistant", "x", calls=(ToolCall("c0", "list_dir", {}),))
    sampled = real.answer(turn)
    new = [Message("tool", "a.py", call_id="c0"), Message("system", "changed")]
    bridge = real.bridge(real.parse(sampled, tools=TOOLS), sampled, new, TOOLS)
    assert bridge is not None and "changed" in real._tokenizer.decode(bridge.ids)
