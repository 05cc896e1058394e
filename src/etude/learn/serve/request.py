"""Bodies of POST /v1/chat/completions and /v1/completions as questions to the engine.

A field that would change the answer and that the server cannot honour is refused with 400 and its name. HARMLESS fields change no answer
and are accepted. NEUTRAL fields are accepted at the value that asks for what is done anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from etude.agent.chat.renderer import Effort
from etude.agent.policy.wire.chat import request_messages
from etude.agent.policy.wire.chat_types import ChatRequest
from etude.agent.policy.wire.errors import WireError, openai_error
from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.dialect.fields import declares, effort_of, empty, one_call_of, one_of
from etude.core.trace.message import Message
from etude.core.trace.unicode import whole
from etude.learn.engine.rows import MAX_TOP

Model = TypeVar("Model", bound=BaseModel)
# Of one request, as at vLLM: each string is searched for in every piece of text.
MAX_STOP_STRINGS = 16
MAX_CHOICES = 128
# OpenAI's limit of a completion without max_tokens.
DEFAULT_TEXT_TOKENS = 16
# Below these, fp32 holds no distribution.
LEAST_TEMPERATURE = 1e-3
LEAST_TOP_P = 1e-6

HARMLESS = frozenset(
    "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention prediction".split()
)
_COMMON = frozenset(
    "model temperature top_p max_tokens stop seed n logprobs stream stream_options return_token_ids".split()
)
CHAT_FIELDS = _COMMON | {
    "messages", "tools", "tool_choice", "parallel_tool_calls", "max_completion_tokens", "top_logprobs", "reasoning_effort",
}  # fmt: skip
TEXT_FIELDS = _COMMON | {"prompt"}
NEUTRAL: Mapping[str, Callable[[Any], bool]] = {
    "frequency_penalty": one_of(0),
    "presence_penalty": one_of(0),
    "repetition_penalty": one_of(1),
    "logit_bias": empty,
    "top_k": one_of(0, -1),
    "min_p": one_of(0),
    "response_format": one_of({"type": "text"}),
    "modalities": one_of(["text"]),
    "verbosity": one_of("medium"),
    "functions": empty,
    "function_call": one_of("auto", "none"),
    "best_of": one_of(1),
    "echo": one_of(False),
    "suffix": empty,
}


class RefusedRequest(ValueError):
    """A request that gets an error. `param` names the field, `code` is OpenAI's word for the reason."""

    def __init__(
        self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.param, self.status, self.code, self.headers = param, status, code, dict(headers or {})

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        found = openai_error(self.status, str(self))
        found["error"] |= {"param": self.param, "code": self.code}
        return found


@dataclass(frozen=True)
class SamplingOptions:
    """How answers are sampled and reported. `max_tokens` None: up to the end of the window. `top_logprobs` None: no logprobs."""

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    choices: int = 1
    top_logprobs: int | None = None
    stream: bool = False
    stream_usage: bool = False
    token_ids: bool = False


@dataclass(frozen=True)
class ChatQuestion:
    """A conversation to answer. `one_call`: at most one tool call."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...]
    effort: Effort | None
    one_call: bool
    options: SamplingOptions


@dataclass(frozen=True)
class TextQuestion:
    """Prompts to continue, each as text or as token ids."""

    model: str
    prompts: tuple[str | tuple[int, ...], ...]
    options: SamplingOptions


class _StreamFields(BaseModel, extra="forbid"):
    include_usage: bool = False


class _Fields(BaseModel):
    model: str
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_p: float | None = Field(default=None, ge=LEAST_TOP_P, le=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: str | list[str] | None = None
    n: int | None = Field(default=None, ge=1, le=MAX_CHOICES)
    stream: bool | None = None
    stream_options: _StreamFields | None = None
    return_token_ids: bool | None = None

    def options(self, top_logprobs: int | None, default_tokens: int | None = None) -> SamplingOptions:
        """Raises RefusedRequest."""
        temperature = 1.0 if self.temperature is None else self.temperature
        if 0 < temperature < LEAST_TEMPERATURE:
            raise RefusedRequest(
                f"temperature = {temperature} must be 0 or at least {LEAST_TEMPERATURE}; use 0 for greedy decoding",
                "temperature",
            )
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        stop = tuple(whole(text) for text in given)
        if len(stop) > MAX_STOP_STRINGS or "" in stop:
            raise RefusedRequest(f"stop takes at most {MAX_STOP_STRINGS} strings, none of them empty", "stop")
        return SamplingOptions(
            max_tokens=self.max_completion_tokens or self.max_tokens or default_tokens,
            temperature=temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=self.seed,
            stop=stop,
            choices=self.n or 1,
            top_logprobs=top_logprobs,
            stream=bool(self.stream),
            stream_usage=self.stream_options is not None and self.stream_options.include_usage,
            token_ids=bool(self.return_token_ids),
        )


class _ChatFields(_Fields):
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP)


class _TextFields(_Fields):
    prompt: str | list[int] | list[str] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP)


def read_chat(body: Mapping[str, Any]) -> ChatQuestion:
    """Raises RefusedRequest, which names the field."""
    _check_fields(body, CHAT_FIELDS)
    fields, request = _validated(_ChatFields, body), _validated(ChatRequest, body)
    if fields.top_logprobs and not fields.logprobs:
        raise RefusedRequest("top_logprobs needs logprobs; set logprobs to true", "top_logprobs")
    tools = _tools(request)
    try:
        messages = tuple(request_messages(request))
    except WireError as error:
        raise RefusedRequest(str(error), "messages") from error
    if messages[-1].role == "assistant":
        raise RefusedRequest("the last message is the assistant's; end with a message of user or tool", "messages")
    offered = _wire(lambda: declares(request.tool_choice, tools, "tool_choice"), "tool_choice")
    effort, unmet = _wire(lambda: effort_of(request.reasoning_effort, "reasoning_effort"), "reasoning_effort")
    if unmet:
        raise RefusedRequest(f"{unmet[0]} is not supported; use low, medium or high", "reasoning_effort")
    one_call = _wire(lambda: one_call_of(body.get("parallel_tool_calls"), "parallel_tool_calls"), "parallel_tool_calls")
    top = (fields.top_logprobs or 0) if fields.logprobs else None
    return ChatQuestion(fields.model, messages, tools if offered else (), effort, one_call, fields.options(top))


def read_text(body: Mapping[str, Any]) -> TextQuestion:
    """Raises RefusedRequest, which names the field."""
    _check_fields(body, TEXT_FIELDS)
    fields = _validated(_TextFields, body)
    given: Any = fields.prompt
    if isinstance(given, str) or (given and isinstance(given[0], int)):
        given = [given]
    prompts = tuple(whole(prompt) if isinstance(prompt, str) else tuple(prompt) for prompt in given)
    if not prompts or not all(prompts):
        raise RefusedRequest("prompt is empty; send a text or token ids", "prompt")
    if len(prompts) * (fields.n or 1) > MAX_CHOICES:
        raise RefusedRequest(f"{len(prompts)} prompts with n = {fields.n or 1} exceed {MAX_CHOICES} answers", "prompt")
    return TextQuestion(fields.model, prompts, fields.options(fields.logprobs, DEFAULT_TEXT_TOKENS))


def _check_fields(body: Mapping[str, Any], honoured: frozenset[str]) -> None:
    for name, value in body.items():
        if name in honoured or name in HARMLESS or value is None:
            continue
        if name not in NEUTRAL:
            raise RefusedRequest(
                f"{name[:80]!r} is no parameter of this server; leave it out", name[:80], code="unknown_parameter"
            )
        if not NEUTRAL[name](value):
            raise RefusedRequest(
                f"{name} = {str(value)[:80]!r} is not supported; leave it out", name, code="unsupported_parameter"
            )


def _validated(kind: type[Model], body: Mapping[str, Any]) -> Model:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])[:200]
        raise RefusedRequest(f"{place}: {first['msg']}", place.partition(".")[0] or None) from error


def _tools(request: ChatRequest) -> tuple[dict[str, Any], ...]:
    for i, tool in enumerate(request.tools or []):
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            raise RefusedRequest(f"tools[{i}] is of type {str(tool.get('type'))[:80]!r}; declare functions", "tools")
        if not isinstance(function.get("name"), str):
            raise RefusedRequest(f"tools[{i}] has no name; give its function one", "tools")
    return tuple(whole(request.tools or ()))


Found = TypeVar("Found")


def _wire(read: Callable[[], Found], param: Literal["tool_choice", "reasoning_effort", "parallel_tool_calls"]) -> Found:
    try:
        return read()
    except ProxyRequestError as error:
        raise RefusedRequest(str(error), param) from error
