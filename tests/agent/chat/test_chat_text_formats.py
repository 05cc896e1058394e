"""Calls that a format spells in text: what is a call, what is malformed, and what stays text."""

from __future__ import annotations

from typing import Any, Callable

import pytest

from etude.agent.chat import trajectories
from etude.agent.chat.problem import Problem, kind_of
from etude.core.trace.builder import SegmentBuilder
from etude.core.trace.completion import SampledTokens
from etude.core.trace.message import Message, ToolCall

TOOLS = trajectories.TOOLS
SPELT = [
    "smollm2",
    "chatml",
    "granite-3",
    "granite-4",
    "phi-3.5",
    "phi-4",
    "smollm3",
    "falcon-h1",
    "cohere",
    "llama-3",
    "gemma-3",
]


def parsed(renderer: Any, text: str) -> Message:
    return renderer.parse([*renderer._tokenizer.encode(text), renderer.stop_ids[0]], tools=TOOLS)


@pytest.mark.parametrize("name", SPELT)
def test_a_spelt_call_needs_an_object_behind_it(make_renderer: Callable[..., Any], name: str) -> None:
    renderer = make_renderer(name)
    said = parsed(renderer, "Calls begin with <tool_call> in this format.")
    assert (said.calls, said.problem) == ((), None)
    call = '<tool_call>\n{"name": "write_file", "arguments": {"path": "p", "text": "a </tool_call> b"}}\n</tool_call>'
    said = parsed(renderer, f"I write.\n{call}\n{call}")
    assert said.text == "I write." and [c.arguments["text"] for c in said.calls] == ["a </tool_call> b"] * 2


@pytest.mark.parametrize("name", SPELT)
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('<tool_call>\n{"name": "list_todos", "arguments": {}}', Problem.UNCLOSED),
        ('<tool_call>\n{"name": "list_todos", "arguments": {}\n</tool_call>', Problem.BAD_JSON),
        ('<tool_call>\n{"arguments": {}}\n</tool_call>', Problem.NO_NAME),
        ('<tool_call>\n{"name": "list_todos", "arguments": [1]}\n</tool_call>', Problem.BAD_JSON),
    ],
)
def test_a_spelt_call_that_is_damaged_is_typed(
    make_renderer: Callable[..., Any], name: str, text: str, kind: Problem
) -> None:
    said = parsed(make_renderer(name), text)
    assert said.problem and kind_of(said.problem) is kind and said.calls == ()


def test_llama_calls_by_json_at_the_end_of_a_turn(make_renderer: Callable[..., Any]) -> None:
    renderer = make_renderer("llama-3.1")
    call = '{"name": "read_file", "parameters": {"path": "a.py"}}'
    for text, said, count in (
        (call, "", 1),
        (f"I read.\n{call}; {call}", "I read.", 2),
        (f"It is called as {call} in the log.", f"It is called as {call} in the log.", 0),
        (f"As in\n{call}\nabove.", f"As in\n{call}\nabove.", 0),
    ):
        message = parsed(renderer, text)
        assert (message.text, len(message.calls), message.problem) == (said, count, None)
    for text in (call[:-1], f"{call} and more"):
        message = parsed(renderer, text)
        assert message.problem and kind_of(message.problem) is Problem.BAD_JSON


def test_llama_refuses_tools_without_a_message_of_the_user(make_renderer: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="tools are declared in the first message of the user"):
        make_renderer("llama-3.1").render([Message("system", "x")], TOOLS)


def test_gemma_joins_results_and_a_request_in_one_turn_of_the_user(make_renderer: Callable[..., Any]) -> None:
    renderer = make_renderer("gemma-3")
    turn = Message("assistant", "", calls=(ToolCall("c0", "list_todos", {}), ToolCall("c1", "list_todos", {})))
    ids = renderer.answer(turn)
    new = [Message("tool", "one", call_id="c0"), Message("tool", "two", call_id="c1"), Message("user", "Go on.")]
    bridge = renderer.bridge(renderer.parse(ids, tools=TOOLS), ids, new, TOOLS)
    text = renderer._tokenizer.decode(bridge.ids)
    assert text.count("<start_of_turn>user") == 1 and text.endswith("<end_of_turn>\n<start_of_turn>model\n")
    assert text.index("one") < text.index("two") < text.index("Go on.") and all(n > 0 for n in bridge.taken)


def test_gpt_oss_chooses_its_first_channel(make_renderer: Callable[..., Any]) -> None:
    renderer = make_renderer("gpt-oss")
    decode = renderer._tokenizer.decode
    assert decode(renderer.render([Message("user", "x")], ())).endswith("<|end|><|start|>assistant")
    straight = renderer.answer(Message("assistant", "", calls=(ToolCall("c0", "list_todos", {}),)))
    assert decode(straight).startswith(" to=functions.list_todos<|channel|>commentary")
    thought = renderer.answer(Message("assistant", "Done.", "So."))
    assert decode(thought).startswith("<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final")
    said = renderer.parse(thought)
    assert (said.thinking, said.text, said.problem) == ("So.", "Done.", None)


# What precedes a role, follows it, ends a message, and what is between messages.
MARKS = {
    "phi-3.5": ("<|", "|>\n", "<|end|>", "\n"),
    "phi-4": ("<|im_start|>", "<|im_sep|>", "<|im_end|>", ""),
    "phi-4-mini": ("<|", "|>", "<|end|>", ""),
    "chatml": ("<|im_start|>", "\n", "<|im_end|>", "\n"),
    "qwen2": ("<|im_start|>", "\n", "<|im_end|>", "\n"),
    **dict.fromkeys(
        ("granite-3", "granite-3.1", "granite-3.3", "granite-4", "granite-4-default"),
        ("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "\n"),
    ),
}


@pytest.mark.parametrize("name", MARKS)
def test_a_conversation_is_the_published_markers_and_only_the_answers_are_sampled(
    make_renderer: Callable[..., Any], name: str
) -> None:
    """The rendering is written a second time here, a message after another, and so is the mask of the sampled tokens."""
    renderer = make_renderer(name)
    encode, (start, behind, end, after) = renderer._tokenizer.encode, MARKS[name]
    said = [
        ("system", "Be brief."),
        ("user", "Two?"),
        ("assistant", "It is 2."),
        ("user", "Three?"),
        ("assistant", "3"),
    ]
    ids: list[int] = []
    sampled: list[bool] = []
    for role, text in said:
        head, body = encode(f"{start}{role}{behind}"), encode(f"{text}{end}")
        between = encode(f"{end}{after}")[1:]  # nothing where the end takes the blanks behind it
        ids += [*head, *body, *between]
        sampled += [False] * len(head) + [role == "assistant"] * len(body) + [False] * len(between)
    messages = [Message(role, text) for role, text in said]
    assert renderer.render(messages, [], generation=False) == ids
    builder, rows = SegmentBuilder(), messages
    builder.prompt(renderer.render(rows[:2], []))
    first = renderer.answer(rows[2])
    builder.sample(SampledTokens(first, [0.0] * len(first), [-1] * len(first)))
    builder.extend(renderer.bridge(rows[2], first, [rows[3]], []).ids)
    second = renderer.answer(rows[4])
    builder.sample(SampledTokens(second, [0.0] * len(second), [-1] * len(second)))
    [segment] = builder.segments()
    last = len(ids) - len(between)
    assert [*segment.ids] == ids[:last] and [*segment.sampled] == sampled[:last]
