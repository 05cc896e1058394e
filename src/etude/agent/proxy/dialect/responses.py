"""OpenAI responses, for agents that send their whole input each time."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from etude.agent.policy.wire import sse
from etude.agent.policy.wire.errors import WireError, openai_error
from etude.agent.policy.wire.responses import request_messages, response, wire_form
from etude.agent.policy.wire.responses_stream import ResponsesStream
from etude.agent.policy.wire.responses_tools import toolset
from etude.agent.policy.wire.responses_types import ResponsesRequest
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.dialect.fields import Fields, check, declares, effort_of, empty, one_call_of, one_of, validate
from etude.core.trace.completion import Completion

FIELDS = Fields(
    honoured=frozenset(
        "model input instructions tools tool_choice temperature max_output_tokens reasoning stream "
        "parallel_tool_calls".split()
    ),
    ignored=frozenset(
        "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention include "
        "stream_options client_metadata".split()
    ),
    neutral={
        "previous_response_id": empty,
        "conversation": empty,
        "top_p": one_of(1),
        "top_logprobs": one_of(0),
        "truncation": one_of("disabled"),
        "background": one_of(False),
        "text": lambda value: value in ({}, {"format": {"type": "text"}}, {"verbosity": "medium"}),
    },
)


class ResponsesDialect:
    """See `Dialect`."""

    name = "openai-responses"
    ended = b""

    def read(self, body: dict[str, Any], allowed: Collection[str]) -> Ask:
        ignored = check(body, FIELDS, allowed)
        request = validate(ResponsesRequest, body)
        try:
            messages, declared = tuple(request_messages(request)), toolset(request.tools or ())
        except WireError as error:
            raise ProxyRequestError(str(error)) from error
        tools = declared.functions
        effort, unmet = effort_of(request.reasoning.effort if request.reasoning else None, "reasoning.effort")
        return Ask(
            model=request.model,
            messages=messages,
            tools=tools if declares(request.tool_choice, tools, "tool_choice") else (),
            forms=declared.forms,
            max_tokens=request.max_output_tokens,
            temperature=1.0 if request.temperature is None else request.temperature,
            effort=effort,
            stream=bool(request.stream),
            one_call=one_call_of(body.get("parallel_tool_calls"), "parallel_tool_calls"),
            ignored=(*ignored, *unmet, *(f"tools.{kind}" for kind in declared.left_out)),
        )

    def answer(self, answer: Completion, *, id: str, ask: Ask) -> dict[str, Any]:
        made = response(answer, id=f"resp_{id}", model=ask.model, created_at=int(time.time()), forms=ask.forms)
        return wire_form(made, one_call=ask.one_call)

    def stream(self, *, id: str, ask: Ask) -> ResponsesStream:
        return ResponsesStream(f"resp_{id}", ask.model, int(time.time()), ask.forms, ask.one_call)

    def frame(self, event: dict[str, Any]) -> bytes:
        return sse.frame(event, event["type"])

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def broken(self, status: int, message: str) -> bytes:
        return sse.frame({"type": "error", **openai_error(status, message)["error"]}, "error")
