"""What the `renderers` package parsed from a sampled turn, as our message: typed problems, exact arguments, unique ids.

A turn is whole or malformed: if one of its calls is broken none is run, the turn's text is kept for human eyes, its ids are
kept for training, and the problem is answered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Sequence

from etude.agent.chat import arguments
from etude.agent.chat.conversation import call_id
from etude.agent.chat.families import ChatFamily
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.agent.chat.problem import Problem
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.plain_json import fault_of
from etude.core.trace.unicode import whole

if TYPE_CHECKING:
    from renderers import ParsedResponse, ParsedToolCall

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
            values = arguments.texts(family.arguments, attempt.raw, ids[start:stop], tokenizer)
            given = arguments.typed(values[within], name, tools)
        except arguments.MalformedArguments as error:
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
