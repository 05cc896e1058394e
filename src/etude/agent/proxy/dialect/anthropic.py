"""Anthropic messages.

Claude Code puts a line for its maker's accounts in front of its system prompt, another one with every request; that server takes
it off, and so does this one: else no request would go on with another.

Whether and how long the model thinks is its chat format's affair, and so is which old thinking its prompt keeps: the fields
about it are let through without effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from etude.agent.policy.wire import sse
from etude.agent.policy.wire.anthropic import hosted_tools, messages_response, request_messages, request_tools
from etude.agent.policy.wire.anthropic_stream import MessagesStream
from etude.agent.policy.wire.anthropic_types import MessagesRequest
from etude.agent.policy.wire.errors import WireError, anthropic_error
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.dialect.fields import Fields, check, declares, effort_of, empty, one_call_of, one_of, validate
from etude.core.trace.completion import Completion

ACCOUNTS = "x-anthropic-billing-header:"


def _clears_thinking_only(value: Any) -> bool:
    edits = value.get("edits", []) if isinstance(value, dict) else [None]
    return all(isinstance(edit, dict) and str(edit.get("type", "")).startswith("clear_thinking") for edit in edits)


FIELDS = Fields(
    honoured=frozenset("model messages system max_tokens tools tool_choice temperature output_config stream".split()),
    ignored=frozenset("metadata service_tier thinking cache_control inference_geo".split()),
    neutral={
        "top_p": one_of(1),
        "top_k": empty,
        "stop_sequences": empty,
        "mcp_servers": empty,
        "context_management": _clears_thinking_only,
    },
)


class AnthropicDialect:
    """See `Dialect`."""

    name = "anthropic"
    ended = b""

    def read(self, body: dict[str, Any], allowed: Collection[str]) -> Ask:
        ignored = check(body, FIELDS, allowed)
        request = validate(MessagesRequest, {**body, "system": _without_accounts(body.get("system"))})
        choice = request.tool_choice or {}
        one_call = _one_call(choice)
        try:
            messages, tools = tuple(request_messages(request)), request_tools(request)
        except WireError as error:
            raise ProxyRequestError(str(error)) from error
        effort, unmet = _effort(body.get("output_config") or {})
        return Ask(
            model=request.model,
            messages=messages,
            tools=tools if declares(request.tool_choice, tools, "tool_choice") else (),
            failed=frozenset(_failed(request)),
            max_tokens=request.max_tokens,
            temperature=1.0 if request.temperature is None else request.temperature,
            effort=effort,
            stream=bool(request.stream),
            one_call=one_call,
            stream_usage=True,
            ignored=(*ignored, *unmet, *(f"tools.{kind}" for kind in hosted_tools(request))),
        )

    def counted(self, body: dict[str, Any], allowed: Collection[str]) -> Ask:
        """A request whose tokens are to be counted: one for a turn, without the turn's limit. Raises Refused."""
        return self.read({"max_tokens": 1, **body}, allowed)

    def answer(self, answer: Completion, *, id: str, ask: Ask) -> dict[str, Any]:
        body = messages_response(answer, id=f"msg_{id}", model=ask.model).model_dump()
        content = [{key: value for key, value in block.items() if value is not None} for block in body["content"]]
        return {**body, "content": content}

    def stream(self, *, id: str, ask: Ask) -> MessagesStream:
        return MessagesStream(f"msg_{id}", ask.model)

    def frame(self, event: dict[str, Any]) -> bytes:
        return sse.frame(event, event["type"])

    def error(self, status: int, message: str) -> dict[str, Any]:
        return anthropic_error(status, message)

    def broken(self, status: int, message: str) -> bytes:
        return sse.frame(anthropic_error(status, message), "error")


def _without_accounts(system: Any) -> Any:
    if isinstance(system, str) and system.startswith(ACCOUNTS):
        return system.partition("\n")[2]
    if isinstance(system, list):
        return [b for b in system if not (isinstance(b, dict) and str(b.get("text", "")).startswith(ACCOUNTS))]
    return system


def _one_call(choice: dict[str, Any]) -> bool:
    disabled = choice.get("disable_parallel_tool_use")
    parallel = not disabled if isinstance(disabled, bool) else disabled
    return one_call_of(parallel, "tool_choice.disable_parallel_tool_use")


def _effort(config: dict[str, Any]) -> Any:
    if others := config.keys() - {"effort"}:
        raise ProxyRequestError(f"output_config.{min(others)} can't be honoured here; leave it out")
    return effort_of(config.get("effort"), "output_config.effort")


def _failed(request: MessagesRequest) -> Iterator[str]:
    for row in request.messages:
        for block in row.content if isinstance(row.content, list) else ():
            if block.type == "tool_result" and block.is_error and block.tool_use_id:
                yield block.tool_use_id
