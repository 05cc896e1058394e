"""Malformed turns of real families: every breach is typed, none crashes or costs more than its length, text calls nothing."""

from __future__ import annotations

import random
import time
from typing import Callable

import pytest

from etude.agent.chat import trajectories
from etude.agent.chat.check import damage_turn
from etude.agent.chat.families import FAMILIES
from etude.agent.chat.family import FamilyRenderer
from etude.agent.chat.problem import Problem, kind_of
from etude.core.trace.message import Message, ToolCall

TOOLS = trajectories.TOOLS


def turns(renderer: FamilyRenderer) -> list[Message]:
    return trajectories.turns(thinks=renderer.family.thinks, markers=[*renderer.family.markers])


def wrong(renderer: FamilyRenderer, edit: Callable[[str], str], turn: Message) -> Message:
    """A turn whose text was edited, its markers kept as markers."""
    tokenizer = renderer._tokenizer
    ids = tokenizer.encode(edit(tokenizer.decode(renderer.answer(turn))))
    return renderer.parse(ids, tools=TOOLS)


CALL = Message(
    "assistant", "", calls=(ToolCall("c0", "edit_file", {"path": "p", "edits": [{"old": "a", "new": "b"}]}),)
)


def test_arguments_that_are_no_json_are_typed(real: FamilyRenderer) -> None:
    message = wrong(real, lambda text: text.replace('[{"old"', '[{"old'), CALL)
    assert message.problem and kind_of(message.problem) is Problem.BAD_JSON and "edit_file" in message.problem
    assert message.calls == () and "edit_file" in message.text


@pytest.mark.parametrize("body", ["[1]", "3", '"text"', "null"])
def test_arguments_that_are_no_object_are_typed(make_renderer: Callable[..., FamilyRenderer], body: str) -> None:
    for name in ("qwen3", "kimi-k2", "deepseek-v3", "gpt-oss"):
        call = Message("assistant", "", calls=(ToolCall("c0", "list_todos", {}),))
        message = wrong(make_renderer(name), lambda text: text.replace("{}", body), call)
        assert message.problem == "bad JSON: the arguments of list_todos are no JSON object"


@pytest.mark.parametrize("value", ["NaN", "1e999", "[" * 150 + "]" * 150], ids=["nan", "too large", "deep"])
def test_arguments_that_no_other_reader_takes_are_typed(
    make_renderer: Callable[..., FamilyRenderer], value: str
) -> None:
    for name in ("qwen3", "kimi-k2", "deepseek-v3", "deepseek-v3.1", "gpt-oss", "qwen3-coder", "glm-4.5", "minimax-m2"):
        call = Message("assistant", "", calls=(ToolCall("c0", "edit_file", {"path": "p", "edits": [417]}),))
        message = wrong(make_renderer(name), lambda text: text.replace("[417]", f"[{value}]"), call)
        assert message.problem and kind_of(message.problem) is Problem.BAD_JSON, (name, message)


def test_a_call_without_an_end_is_typed(make_renderer: Callable[..., FamilyRenderer]) -> None:
    ends = {"qwen3": "</tool_call>", "qwen3-coder": "</tool_call>", "glm-4.5": "</tool_call>",
            "kimi-k2": "<|tool_call_end|>", "minimax-m2": "</minimax:tool_call>"}  # fmt: skip
    for name, end in ends.items():
        message = wrong(make_renderer(name), lambda text, end=end: text.replace(end, ""), CALL)
        assert message.problem and kind_of(message.problem) is Problem.UNCLOSED, name


def test_a_call_of_an_unknown_tool_stays_a_call_for_the_harness_to_answer(real: FamilyRenderer) -> None:
    back = real.parse(real.answer(Message("assistant", calls=(ToolCall("c0", "fly", {"to": "x"}),))), tools=TOOLS)
    assert back.problem is None and [(c.name, c.arguments) for c in back.calls] == [("fly", {"to": "x"})]


def test_a_value_of_another_type_than_declared_is_typed(make_renderer: Callable[..., FamilyRenderer]) -> None:
    call = Message("assistant", "", calls=(ToolCall("c0", "read_file", {"path": "p", "limit": 123}),))
    for name in ("qwen3-coder", "qwen3.5", "glm-4.5", "glm-5", "minimax-m2"):
        message = wrong(make_renderer(name), lambda text: text.replace("123", "many"), call)
        assert message.problem == "bad JSON: read_file: limit is 'many', which is no integer", name


def test_a_markers_spelling_in_plain_tokens_calls_nothing(make_renderer: Callable[..., FamilyRenderer]) -> None:
    """Calls come from ids: text that looks like one, quoted from a file, is text."""
    for name in ("kimi-k2.5", "qwen3", "deepseek-v3", "glm-5", "minimax-m2"):
        renderer = make_renderer(name)
        shown = renderer._tokenizer.decode(renderer.answer(CALL)[:-1])
        quoted = renderer._tokenizer.guard(shown)
        end = renderer.answer(Message("assistant", "x"))[-1]
        opening = renderer.answer(Message("assistant", "x"))
        opening = opening[: len(opening) - 1 - len(renderer._tokenizer.encode("x"))]
        message = renderer.parse([*opening, *renderer._tokenizer.encode(f"It says {quoted}"), end], tools=TOOLS)
        assert message.calls == () and message.problem is None, name
        assert "edit_file" in message.text


def test_another_roles_marker_inside_a_turn_is_stray(real: FamilyRenderer) -> None:
    if not real.family.roles:
        return
    stray = real._tokenizer.convert_tokens_to_ids(real.family.roles[0])
    ids = real.answer(Message("assistant", "x"))
    message = real.parse([*ids[:-1], stray, *ids[-2:]], tools=TOOLS)
    assert message.problem and kind_of(message.problem) is Problem.STRAY


@pytest.mark.parametrize("token", [-1, 10_000_000])
def test_an_id_beyond_the_vocabulary_is_stray(real: FamilyRenderer, token: int) -> None:
    message = real.parse([token, *real.answer(Message("assistant", "x"))], tools=TOOLS)
    assert message.problem and kind_of(message.problem) is Problem.STRAY


def test_a_turn_that_ends_inside_its_thinking_is_typed(make_renderer: Callable[..., FamilyRenderer]) -> None:
    for name in ("qwen3.5", "kimi-k2.5", "glm-5", "minimax-m2", "deepseek-r1"):
        renderer = make_renderer(name)
        end = renderer.answer(Message("assistant", "x"))[-1]
        message = renderer.parse([*renderer._tokenizer.encode("hm, let me see"), end], tools=TOOLS)
        assert message.problem and kind_of(message.problem) is Problem.OPEN_THINKING, name
        assert "let me see" in message.thinking


def check_damaged(renderer: FamilyRenderer, draws: int, seed: int) -> None:
    draw = random.Random(seed)
    spoken = [renderer.answer(turn) for turn in turns(renderer)]
    for _ in range(draws):
        ids = damage_turn(draw, spoken, renderer._tokenizer.size)
        message = renderer.parse(ids, tools=TOOLS, first_call=3)
        assert message.role == "assistant"
        assert message.problem is None or (kind_of(message.problem) is not None and message.calls == ())
        assert len({call.id for call in message.calls}) == len(message.calls)
        kinds = renderer.count(ids)
        assert kinds.thinking + kinds.calling + kinds.message == len(ids)
        results = [Message("tool", "r", call_id=call.id) for call in message.calls] or [Message("tool", "malformed")]
        bridge = renderer.bridge(message, ids, results, TOOLS)
        assert bridge is None or bridge.ids
        assert Message.from_json(message.to_json()) == message


@pytest.mark.sample(15)
def test_malformed_turns_always_get_a_typed_answer(real: FamilyRenderer) -> None:
    check_damaged(real, 120, seed=7)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_ten_thousand_malformed_turns_always_get_a_typed_answer(real: FamilyRenderer) -> None:
    check_damaged(real, 10_000 // len(FAMILIES) + 1, seed=11)


@pytest.mark.sample(60)
@pytest.mark.parametrize("loop", ["<parameter=a>\n", '<parameter name="a">', "[", "</parameter>", "\\"])
def test_a_turn_that_repeats_itself_is_read_in_no_time(real: FamilyRenderer, loop: str) -> None:
    call = Message("assistant", "", calls=(ToolCall("c0", "write_file", {"path": "p", "text": loop * 2000}),))
    whole = real.answer(call)
    cut = [*whole[: len(whole) // 2], *real.answer(CALL)[-2:]]
    start = time.process_time()
    for ids in (whole, cut):
        real.parse(ids, tools=TOOLS)
        real.count(ids)
    assert time.process_time() - start < 1.0
