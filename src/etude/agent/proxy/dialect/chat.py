"""OpenAI chat completions."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from etude.agent.policy.wire import sse
from etude.agent.policy.wire.chat import chat_completion, request_messages
from etude.agent.policy.wire.chat_stream import ChatStream
from etude.agent.policy.wire.chat_types import ChatRequest
from etude.agent.policy.wire.errors import WireError, openai_error
from etude.agent.policy.wire.token_fields import ASK, token_fields
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.dialect.fields import Fields, check, declares, effort_of, empty, one_call_of, one_of, validate
from etude.core.trace.completion import Completion

FIELDS = Fields(
    honoured=frozenset(
        "model messages tools tool_choice temperature max_tokens max_completion_tokens seed reasoning_effort stream "
        "stream_options parallel_tool_calls return_token_ids".split()
    ),
    ignored=frozenset(
        "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention prediction".split()
    ),
    neutral={
        "n": one_of(1),
        "top_p": one_of(1),
        "frequency_penalty": one_of(0),
        "presence_penalty": one_of(0),
        "stop": empty,
        "logit_bias": empty,
        "logprobs": one_of(False),
        "top_logprobs": one_of(0),
        "response_format": one_of({"type": "text"}),
        "modalities": one_of(["text"]),
        "verbosity": one_of("medium"),
        "functions": empty,
        "function_call": one_of("auto", "none"),
    },
)


class ChatDialect:
    """See `Dialect`."""

    name = "openai-chat"
    ended = sse.DONE

    def read(self, body: dict[str, Any], allowed: Collection[str]) -> Ask:
        ignored = check(body, FIELDS, allowed)
        request = validate(ChatRequest, body)
        for i, tool in enumerate(request.tools or []):
            if tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
                raise ProxyRequestError(f"tools[{i}] is of type {tool.get('type')!r}; only functions can be declared")
            if not isinstance(tool["function"].get("name"), str):
                raise ProxyRequestError(f"tools[{i}] has no name")
        try:
            messages = tuple(request_messages(request))
        except WireError as error:
            raise ProxyRequestError(str(error)) from error
        tools = tuple(request.tools or ())
        effort, unmet = effort_of(request.reasoning_effort, "reasoning_effort")
        return Ask(
            model=request.model,
            messages=messages,
            tools=tools if declares(request.tool_choice, tools, "tool_choice") else (),
            max_tokens=request.most_tokens,
            temperature=1.0 if request.temperature is None else request.temperature,
            seed=request.seed,
            effort=effort,
            stream=bool(request.stream),
            one_call=one_call_of(body.get("parallel_tool_calls"), "parallel_tool_calls"),
            stream_usage=bool(request.stream_options and request.stream_options.include_usage),
            token_ids=body.get(ASK) is True,
            ignored=(*ignored, *unmet),
        )

    def answer(self, answer: Completion, *, id: str, ask: Ask) -> dict[str, Any]:
        body = chat_completion(answer, id=f"chatcmpl-{id}", model=ask.model, created=int(time.time()))
        row = body.model_dump(exclude_none=True)
        row["choices"][0]["logprobs"] = None  # clients look for it
        row["choices"][0]["message"].setdefault("content", None)
        if ask.token_ids and answer.tokens is not None:
            of_answer, of_choice = token_fields(answer.prompt_ids, answer.tokens)
            row["choices"][0] |= of_choice
            row |= of_answer
        return row

    def stream(self, *, id: str, ask: Ask) -> ChatStream:
        return ChatStream(f"chatcmpl-{id}", ask.model, int(time.time()), ask.stream_usage, ask.token_ids)

    def frame(self, event: dict[str, Any]) -> bytes:
        return sse.frame(event)

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)

    def broken(self, status: int, message: str) -> bytes:
        return sse.frame(openai_error(status, message)) + sse.DONE
