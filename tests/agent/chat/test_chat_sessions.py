"""A session with tools in each format that this package writes for templates with tools, written a second time here: text, ids, loss mask."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from etude.core.trace.builder import SegmentBuilder
from etude.core.trace.completion import SampledTokens
from etude.core.trace.message import Message, ToolCall

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "See.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}
ASKED = [Message("system", "Be brief."), Message("user", "Two?")]
TURN = Message("assistant", "I look.", calls=(ToolCall("c0", "look", {"at": "é"}), ToolCall("c1", "look", {})))
RESULTS = [Message("tool", "one", call_id="c0"), Message("tool", "two", call_id="c1")]
LAST = Message("assistant", "It is 2.")

ONE = '{"name": "look", "arguments": {"at": "é"}}'
TWO = '{"name": "look", "arguments": {}}'
HERMES = f"I look.\n<tool_call>\n{ONE}\n</tool_call>\n<tool_call>\n{TWO}\n</tool_call>"
GRANITE = "<|start_of_role|>{}<|end_of_role|>{}<|end_of_text|>\n".format
GRANITE_ASKS = "<|start_of_role|>assistant<|end_of_role|>"
GRANITE_LIST = (f"I look.<|tool_call|>[{ONE}, {TWO}]<|end_of_text|>", "It is 2.<|end_of_text|>")
INDENTED = json.dumps([TOOL], indent=4)
FOUR_DECLARES = (
    "Be brief.\n\nYou are a helpful assistant with access to the following tools. You may call one or more tools to assist with the user query."
    "\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    + json.dumps(TOOL)
    + "\n</tools>\n\nFor each tool "
    "call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>. If a tool does not exist in the provided list of tools, notify '
    "the user that you do not have the ability to fulfill the request."
)
FOUR = (
    GRANITE("system", FOUR_DECLARES) + GRANITE("user", "Two?") + GRANITE_ASKS,
    HERMES + "<|end_of_text|>",
    "\n"
    + GRANITE("user", "\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>")
    + GRANITE_ASKS,
    "It is 2.<|end_of_text|>",
)
DECLARED = json.dumps([TOOL["function"]])
# What precedes the turn, the turn, what precedes the last turn, the last turn.
SESSIONS = {
    **{
        name: (
            GRANITE("system", "Be brief.") + GRANITE(role, INDENTED) + GRANITE("user", "Two?") + GRANITE_ASKS,
            GRANITE_LIST[0],
            "\n" + GRANITE("tool", "one") + GRANITE("tool", "two") + GRANITE_ASKS,
            GRANITE_LIST[1],
        )
        for name, role in (("granite-3.1", "tools"), ("granite-3.3", "available_tools"))
    },
    "phi-4-mini": (
        f"<|system|>Be brief.<|tool|>{DECLARED}<|/tool|><|end|><|user|>Two?<|end|><|assistant|>",
        f"I look.<|tool_call|>[{ONE}, {TWO}]<|/tool_call|><|end|>",
        "<|tool_response|>one<|end|><|tool_response|>two<|end|><|assistant|>",
        "It is 2.<|end|>",
    ),
    "granite-4": FOUR,
    "granite-4-default": FOUR,
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_with_tools_has_the_published_words_and_only_its_turns_are_sampled(
    make_renderer: Callable[..., Any], name: str
) -> None:
    renderer = make_renderer(name)
    encode, decode, expected = renderer._tokenizer.encode, renderer._tokenizer.decode, SESSIONS[name]
    asked, turn, answered, last = map(encode, expected)
    assert decode(renderer.render(ASKED, [TOOL])) == expected[0]
    assert decode(renderer.answer(TURN)) == expected[1]
    assert renderer.parse(turn, tools=[TOOL]) == TURN
    bridge = renderer.bridge(TURN, turn, RESULTS, [TOOL])
    assert decode(bridge.ids) == expected[2] and len(bridge.taken) == 2 and min(bridge.taken) > 0
    builder = SegmentBuilder()
    for prompt, ids in ((renderer.render(ASKED, [TOOL]), renderer.answer(TURN)), (bridge.ids, renderer.answer(LAST))):
        builder.prompt(prompt) if ids == turn else builder.extend(prompt)
        builder.sample(SampledTokens(ids, [0.0] * len(ids), [-1] * len(ids)))
    [segment] = builder.segments()
    assert [*segment.ids] == [*asked, *turn, *answered, *last]
    assert [*segment.sampled] == [False] * len(asked) + [True] * len(turn) + [False] * len(answered) + [True] * len(
        last
    )
    whole = renderer.render([*ASKED, TURN, *RESULTS], [TOOL])
    assert whole == [*asked, *turn, *answered]


@pytest.mark.parametrize(("name", "said"), [
    ("granite-3.1", "Knowledge Cutoff Date: April 2024.\nToday's Date: August 05, 2025.\nYou are Granite, developed by IBM. You are a helpful AI "
     "assistant."),
    ("granite-3.3", " Knowledge Cutoff Date: April 2024.\n Today's Date: August 05, 2025. You are Granite, developed by IBM. You are a helpful AI "
     "assistant."),
    ("granite-4", None),
    ("granite-4-default", "You are a helpful assistant. Please ensure responses are professional, accurate, and safe."),
])  # fmt: skip
def test_without_a_system_prompt_the_templates_own_one_is_written(
    make_renderer: Callable[..., Any], name: str, said: str | None
) -> None:
    renderer = make_renderer(name)
    text = renderer._tokenizer.decode(renderer.render(ASKED[1:], []))
    assert text == (GRANITE("system", said) if said else "") + GRANITE("user", "Two?") + GRANITE_ASKS


@pytest.mark.parametrize("name", ["granite-3.1", "granite-3.3"])
def test_a_list_of_calls_that_is_damaged_is_typed(make_renderer: Callable[..., Any], name: str) -> None:
    renderer = make_renderer(name)
    for body, problem in (
        (f"[{ONE}", "bad JSON: the arguments of look are no JSON"),
        (f"[{ONE}, 3]", "call without a name: say which tool to call"),
        ("[]", "call without a name: say which tool to call"),
        ('[{"name": "look", "arguments": 3}]', "bad JSON: the arguments of look are no JSON object"),
    ):
        ids = renderer._tokenizer.encode(f"<|tool_call|>{body}<|end_of_text|>")
        said = renderer.parse(ids, tools=[TOOL])
        assert (said.problem, said.calls) == (problem, ()), body
    one = renderer.parse(renderer._tokenizer.encode(f"<|tool_call|>{ONE}<|end_of_text|>"), tools=[TOOL])
    assert [call.arguments for call in one.calls] == [{"at": "é"}]
