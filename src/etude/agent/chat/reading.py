"""What the `renderers` package parsed from a sampled turn, as our message: typed problems, exact arguments, unique ids.

A turn is whole or malformed: if one of its calls is broken none is run, the turn's text is kept for human eyes, its ids are
kept for training, and the problem is answered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Sequence

from etude.agent.chat.chat_family import Arguments, ChatFamily
from etude.agent.chat.conversation import call_id
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.problem import Problem
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.plain_json import fault_of, parse
from etude.core.trace.unicode import whole

if TYPE_CHECKING:
    from renderers import ParsedResponse, ParsedToolCall


# Arguments of the formats that write each one as untyped text between tags, read exactly as they were written.
#
# The declared type decides: text stays verbatim, indentation included (an edit copies it), all else must be JSON. The
# package's own readers strip the text, which would change the lines an edit looks for.


# How a format's parameters and calls are written: what opens a name, what ends it, what closes the value, and what may follow.
# A value ends where one of these follows, so that it may contain the closing tag itself.
_PARAMETER = ("<parameter=", ">", "</parameter>", re.compile(r"\s*(?:<parameter=|</function>|\Z)"))
_INVOKED = ('<parameter name="', '">', "</parameter>", re.compile(r'\s*(?:<parameter name="|</invoke>|\Z)'))
_INVOKE = ('<invoke name="', '">', "</invoke>", re.compile(r'\s*(?:<invoke name="|\Z)'))
# GLM's tags where the tokenizer has no tokens for them.
_ARGUMENT = ("<arg_key>", "</arg_key>", "</arg_value>", re.compile(r"\s*(?:<arg_key>|</tool_call>|\Z)"))
_Tags = tuple[str, str, str, re.Pattern[str]]
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}  # templates spell them as Python or as JSON


class MalformedArguments(ValueError):
    """Arguments that break the format, or a value that is not of the declared type; says which."""


def texts(kind: Arguments, raw: str, ids: Sequence[int], tokenizer: HubTokenizer) -> list[dict[str, str]]:
    """The arguments of each call in one block, as written: `raw` is the block's text, `ids` its tokens."""
    if kind.startswith("arg_value"):
        return [_tagged(ids, tokenizer, kind.removeprefix("arg_value"))]
    if kind == "arg_text":
        return [{key.strip(): _behind_tag(key, value) for key, value in _pairs(_ARGUMENT, raw)}]
    if kind == "invoke":
        return [dict(_pairs(_INVOKED, body)) for _, body in _pairs(_INVOKE, raw)]
    return [{key: _unwrapped(value) for key, value in _pairs(_PARAMETER, raw)}]


def convert_types(values: dict[str, str], name: str, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The values as the tool `name` declares them; undeclared ones are JSON if they can be, else text."""
    declared = next((tool["function"] for tool in tools if tool["function"]["name"] == name), {})
    properties = declared.get("parameters", {}).get("properties", {})
    return {key: _value(key, text, _types(properties.get(key))) for key, text in values.items()}


def _pairs(tags: _Tags, text: str) -> list[tuple[str, str]]:
    """(name, body) of each element, read once from front to back: a turn that repeats itself costs no more than its length."""
    opening, named, closing, follows = tags
    found: list[tuple[str, str]] = []
    at = text.find(opening)
    while at >= 0:
        border = text.find(named, at)
        stop = text.find(closing, border) if border >= 0 else -1
        while stop >= 0 and not follows.match(text, stop + len(closing)):
            stop = text.find(closing, stop + 1)
        if stop < 0:
            raise MalformedArguments(f"{opening}... has no end")
        found.append((text[at + len(opening) : border], text[border + len(named) : stop]))
        at = text.find(opening, stop + len(closing))
    return found


def _behind_tag(key: str, text: str) -> str:
    """What follows the tag that opens a value."""
    before, tag, value = text.partition("<arg_value>")
    if not tag or before.strip():
        raise MalformedArguments(f"{key.strip()} has no value")
    return value


def _unwrapped(value: str) -> str:
    """Without the line break at either end, which the format writes around a value."""
    return value.removeprefix("\n").removesuffix("\n")


def _tagged(ids: Sequence[int], tokenizer: HubTokenizer, suffix: str) -> dict[str, str]:
    tags = [f"<arg_key{suffix}>", f"</arg_key{suffix}>", f"<arg_value{suffix}>", f"</arg_value{suffix}>"]
    markers = tokenizer.convert_tokens_to_ids(tags)
    places = [i for i, token in enumerate(ids) if token in markers]
    if [ids[i] for i in places] != markers * (len(places) // 4):
        raise MalformedArguments("an argument is not closed")
    quads = zip(*[iter(places)] * 4, strict=True)
    return {tokenizer.decode(ids[a + 1 : b]).strip(): tokenizer.decode(ids[c + 1 : d]) for a, b, c, d in quads}


def _types(schema: Any) -> set[str]:
    """The JSON types a schema allows; empty if it says nothing."""
    if not isinstance(schema, dict):
        return set()
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= _types(branch)
    if not types and "enum" in schema:
        types = {"string"} if all(isinstance(word, str) for word in schema["enum"]) else set()
    return types


def _value(key: str, text: str, types: set[str]) -> Any:
    if types == {"string"}:
        return text
    stripped = text.strip()
    if stripped.lower() in _CONSTANTS and (types & {"boolean", "null"} or not types):
        return _CONSTANTS[stripped.lower()]
    try:
        return parse(stripped)
    except ValueError as error:
        if types and "string" not in types:
            wanted = " or ".join(sorted(types))
            raise MalformedArguments(f"{key} is {stripped[:40]!r}, which is no {wanted}") from error
        return text


_KINDS = {
    "invalid_json": (Problem.BAD_JSON, "the arguments of {name} are no JSON"),
    "unclosed_block": (Problem.UNCLOSED, "{name} has no end"),
    "missing_name": (Problem.NO_NAME, "say which tool to call"),
    "malformed_structure": (Problem.MALFORMED, "{name} does not follow the format of a call"),
}


class MalformedCall(Exception):
    """A call that can't be run; the text for `Message.problem`."""


def message_of(
    parsed: ParsedResponse,
    ids: list[int],
    *,
    family: ChatFamily,
    tokenizer: HubTokenizer,
    closed: bool,
    tools: Sequence[dict[str, Any]],
    first_call: int,
) -> Message:
    """The turn's message. `ids` are its tokens without the end marker; `closed` tells whether there was one."""
    thinking = parsed.reasoning_content or ""
    try:
        if not closed:
            raise MalformedCall(Problem.CUT_OFF.say(""))
        if parsed.reasoning_complete is False:
            raise MalformedCall(Problem.OPEN_THINKING.say("end the thinking, then answer or call a tool"))
        # A call without a place among the ids was found in text alone: it is no call.
        attempts = [call for call in parsed.tool_calls if call.token_span is not None]
        if len(attempts) < len(parsed.tool_calls):
            return Message("assistant", _after_thinking(tokenizer.decode(ids), family), thinking)
        calls = _calls(attempts, ids, family, tokenizer, tools, first_call)
    except MalformedCall as malformed:
        text = _after_thinking(tokenizer.decode(ids), family) if parsed.reasoning_complete is not False else ""
        return Message("assistant", text, thinking, problem=str(malformed))
    return Message("assistant", parsed.content, thinking, tuple(calls))


def _calls(
    attempts: Sequence[ParsedToolCall],
    ids: list[int],
    family: ChatFamily,
    tokenizer: HubTokenizer,
    tools: Sequence[dict[str, Any]],
    first_call: int,
) -> list[ToolCall]:
    calls: list[ToolCall] = []
    within = 0  # a block may hold several calls
    for i, attempt in enumerate(attempts):
        within = within + 1 if i and attempts[i - 1].token_span == attempt.token_span else 0
        given = _arguments(attempt, within, ids, family, tokenizer, tools)
        assert attempt.name is not None
        calls.append(ToolCall(call_id(attempt.id, first_call + i), attempt.name, given))
    return calls


def _arguments(
    attempt: ParsedToolCall,
    within: int,
    ids: list[int],
    family: ChatFamily,
    tokenizer: HubTokenizer,
    tools: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    name = attempt.name or _name_in(attempt.raw)
    retyped = family.arguments != "json"
    status = str(attempt.status)
    if status in _KINDS and not (retyped and status == "invalid_json"):
        kind, detail = _KINDS[status]
        raise MalformedCall(kind.say(detail.format(name=name)))
    if not attempt.name:
        raise MalformedCall(Problem.NO_NAME.say("say which tool to call"))
    given: Any = attempt.arguments
    if retyped:
        assert attempt.token_span is not None
        start, stop = attempt.token_span
        try:
            values = texts(family.arguments, attempt.raw, ids[start:stop], tokenizer)
            given = convert_types(values[within], name, tools)
        except MalformedArguments as error:
            raise MalformedCall(Problem.BAD_JSON.say(f"{name}: {error}")) from error
    if not isinstance(given, dict):
        raise MalformedCall(Problem.BAD_JSON.say(f"the arguments of {name} are no JSON object"))
    if (fault := fault_of(given)) is not None:
        raise MalformedCall(Problem.BAD_JSON.say(f"the arguments of {name} are no JSON: {fault}"))
    return whole(given)


def _name_in(raw: str) -> str:
    """The name in a call whose JSON does not read."""
    found = re.search(r'"name"\s*:\s*"([^"\n]{1,80})"', raw)
    return found[1] if found else "a call"


def _after_thinking(text: str, family: ChatFamily) -> str:
    """A turn's text for human eyes, without the thinking, which is kept separately."""
    before, end, after = text.partition(family.think_end)
    return (after if end else before).strip()
