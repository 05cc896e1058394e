"""A session with tools in each format that this package writes for templates with tools, written a second time here: text, ids, loss mask."""

from __future__ import annotations

import json
from typing import Any, Callable

import pytest

from etude.agent.chat.hermes import QWEN_WORDS
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
CHATML = "<|im_start|>{}\n{}<|im_end|>\n".format
CHATML_ASKS = "<|im_start|>assistant\n"
SMOL = "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: 05 August 2025\nReasoning Mode: /no_think\n\n"
SMOL += "## Custom Instructions\n\n"
SMOL_TOOLS = (
    "### Tools\n\nYou may call one or more functions to assist with the user query.\nYou are provided with function signatures within "
    f"<tools></tools> XML tags:\n\n<tools>\n{json.dumps(TOOL['function'])}\n</tools>\n\nFor each function call, return a json object with function "
    'name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>\n\n<|im_end|>\n"
)
SMOL_ASKS = CHATML_ASKS + "<think>\n\n</think>\n"
FALCON_TOOLS = (
    "You are a function calling AI model. You are provided with function signature within <tools> </tools> XML tags. You may call one or more "
    "functions to assist with the user query. Don't make assumptions about what values to plug into functions.\n<tools>\n"
    f"[{json.dumps(TOOL)}]\n</tools>\nFor each function call, return a json object with function name and arguments within <tool_call> "
    "</tool_call> tags with the following schema:\n<tool_call>\n{'arguments': <args-dict>, 'name': <function-name>}\n</tool_call>\n"
)
LFM2 = (
    f"<|startoftext|>{CHATML('system', f'Be brief.{chr(10)}List of tools: <|tool_list_start|>[{json.dumps(TOOL)}]<|tool_list_end|>')}"
    + CHATML("user", "Two?") + CHATML_ASKS,
    "I look.<|tool_call_start|>[look(at='é'), look()]<|tool_call_end|><|im_end|>",
    "\n" + "".join(CHATML("tool", f"<|tool_response_start|>{word}<|tool_response_end|>") for word in ("one", "two")) + CHATML_ASKS,
    "It is 2.<|im_end|>",
)  # fmt: skip
OLMO = (
    CHATML("system", f"Be brief.<functions>{json.dumps([TOOL])}</functions>") + CHATML("user", "Two?") + CHATML_ASKS,
    'I look.<function_calls>look(at="é")\nlook()</function_calls><|im_end|>',
    "\n" + CHATML("environment", "one") + CHATML("environment", "two") + CHATML_ASKS,
    "It is 2.<|im_end|>",
)
OLMO_IDLE = "You do not currently have access to any functions. <functions></functions>"
COHERE = "<|START_OF_TURN_TOKEN|><|{}_TOKEN|>{}<|END_OF_TURN_TOKEN|>".format
COHERE_ASKS = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
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
    "smollm3": (
        f"{SMOL}Be brief.\n\n{SMOL_TOOLS}" + CHATML("user", "Two?") + SMOL_ASKS,
        HERMES + "<|im_end|>",
        "\n" + CHATML("user", "one") + CHATML("user", "two") + SMOL_ASKS,
        "It is 2.<|im_end|>",
    ),
    "falcon-h1": (
        f"<|begin_of_text|><|im_start|>system\nBe brief.\n\n{FALCON_TOOLS}" + CHATML("user", "Two?") + CHATML_ASKS,
        HERMES + "<|im_end|>",
        "\n" + CHATML("tool", "one") + CHATML("tool", "two") + CHATML_ASKS,
        "It is 2.<|im_end|>",
    ),
    "lfm2": LFM2,
    "lfm2-first": LFM2,
    "olmo-3": OLMO,
    "olmo-3.1": OLMO,
    "cohere": (
        "<BOS_TOKEN>"
        + COHERE("SYSTEM", f"Be brief.\n\n{QWEN_WORDS[0]}\n{json.dumps(TOOL)}{QWEN_WORDS[1]}")
        + COHERE("USER", "Two?")
        + COHERE_ASKS,
        HERMES + "<|END_OF_TURN_TOKEN|>",
        COHERE("USER", "<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response>") + COHERE_ASKS,
        "It is 2.<|END_OF_TURN_TOKEN|>",
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


DEFAULTS = {
    "granite-3.1": GRANITE(
        "system",
        "Knowledge Cutoff Date: April 2024.\nToday's Date: August 05, 2025.\nYou are Granite, developed by IBM. You are a helpful AI assistant.",
    ),
    "granite-3.3": GRANITE(
        "system",
        " Knowledge Cutoff Date: April 2024.\n Today's Date: August 05, 2025. You are Granite, developed by IBM. You are a helpful AI assistant.",
    ),
    "granite-4": "",
    "granite-4-default": GRANITE(
        "system", "You are a helpful assistant. Please ensure responses are professional, accurate, and safe."
    ),
    "smollm3": f"{SMOL}You are a helpful AI assistant named SmolLM, trained by Hugging Face.\n\n",
    "falcon-h1": "<|begin_of_text|>",
    "lfm2": "<|startoftext|>",
    "olmo-3": CHATML("system", f"You are a helpful function-calling AI assistant. {OLMO_IDLE}"),
    "olmo-3.1": CHATML(
        "system",
        "You are Olmo, a helpful AI assistant built by Ai2. Your date cutoff is December 2024, and your model weights are available at "
        f"https://huggingface.co/allenai. {OLMO_IDLE}",
    ),
    "cohere": "<BOS_TOKEN>",
    "phi-4-mini": "",
    "qwen2": CHATML("system", "You are a helpful assistant."),
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_without_a_system_prompt_and_tools_the_templates_own_opening_is_written(
    make_renderer: Callable[..., Any], name: str
) -> None:
    renderer = make_renderer(name)
    asked = {
        "granite": GRANITE("user", "Two?") + GRANITE_ASKS,
        "smollm3": CHATML("user", "Two?") + SMOL_ASKS,
        "cohere": COHERE("USER", "Two?") + COHERE_ASKS,
        "phi": "<|user|>Two?<|end|><|assistant|>",
    }.get(name.partition("-")[0], CHATML("user", "Two?") + CHATML_ASKS)
    assert renderer._tokenizer.decode(renderer.render(ASKED[1:], [])) == DEFAULTS[name] + asked


READ = [
    ("look(at='a.py', n=-2, f=1.5e3)", [("look", {"at": "a.py", "n": -2, "f": 1500.0})]),
    ("look(at='it\\'s\\n\\\\ \\q')", [("look", {"at": "it's\n\\ \\q"})]),
    ('look(at="a \\u00e9 \\"b\\"", a=True, b=false, c=None)', [("look", {"at": 'a é "b"', "a": True, "b": False, "c": None})]),
    (
        "look(rows=[{'a': [1, 'x']}, {\"b\": null}, []]), list()",
        [("look", {"rows": [{"a": [1, "x"]}, {"b": None}, []]}), ("list", {})],
    ),
]  # fmt: skip
DAMAGED = [
    "", "[]", "[look(at='a)]", "[look(at='a']", "[look(a=1, a=2)]", "[look('a')]", "[look(a=b)]", "[look(a={1: 2})]", "[look(a=1)] x",
    "look(a=1)", "[look(a=" + "[" * 5000 + "]" * 5000 + ")]", "[look(a=" + "9" * 9000 + ")]",
]  # fmt: skip


@pytest.mark.parametrize(("text", "calls"), READ)
def test_calls_of_lfm2_are_read_as_python_and_as_json(
    make_renderer: Callable[..., Any], text: str, calls: list[Any]
) -> None:
    renderer = make_renderer("lfm2")
    said = renderer.parse(renderer._tokenizer.encode(f"<|tool_call_start|>[{text}]<|tool_call_end|><|im_end|>"))
    assert said.problem is None and [(call.name, call.arguments) for call in said.calls] == calls


@pytest.mark.parametrize(("text", "calls"), READ)
def test_calls_of_olmo_are_read_line_by_line(make_renderer: Callable[..., Any], text: str, calls: list[Any]) -> None:
    renderer = make_renderer("olmo-3")
    lines = text.replace("), ", ")\n")
    said = renderer.parse(renderer._tokenizer.encode(f"<function_calls>{lines}</function_calls><|im_end|>"))
    assert said.problem is None and [(call.name, call.arguments) for call in said.calls] == calls
    said = renderer.parse(renderer._tokenizer.encode(f"<function_calls>[{text}]</function_calls><|im_end|>"))
    assert said.calls == () and said.problem == "bad JSON: the arguments of a call are no JSON"


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_call_of_lfm2_is_typed(make_renderer: Callable[..., Any], text: str) -> None:
    renderer = make_renderer("lfm2")
    for end, kind in (("<|tool_call_end|>", "bad JSON: the arguments of "), ("", "unclosed call: ")):
        said = renderer.parse(renderer._tokenizer.encode(f"<|tool_call_start|>{text}{end}<|im_end|>"))
        assert said.calls == () and said.problem.startswith(kind), said.problem


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
