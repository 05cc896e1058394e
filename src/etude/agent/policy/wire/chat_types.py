"""OpenAI chat completions: the request, the answer, and its streamed pieces (the API reference's "Chat completions").

Fields that we don't read are allowed in requests and kept in `model_extra`: a server that can't honour one must say so.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _ChatModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class ChatPart(_ChatModel):
    """A part of a content list."""

    type: str
    text: str | None = None


class ChatFunction(_ChatModel):
    """What is called: `arguments` is JSON as text. In streams both come in pieces."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None  # some servers send them parsed


class ChatCall(_ChatModel):
    """One tool call; `index` tells streamed pieces apart."""

    id: str | None = None
    type: str | None = "function"
    function: ChatFunction = Field(default_factory=ChatFunction)
    index: int | None = None


class ChatMessage(_ChatModel):
    """One message of a request or an answer."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ChatPart] | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None  # DeepSeek's name, which vLLM and others took over
    reasoning: str | None = None  # OpenRouter's


class ChatStreamOptions(_ChatModel):
    """What a stream carries in addition to the answer."""

    include_usage: bool = False


class ChatRequest(_ChatModel):
    """The body of POST /v1/chat/completions."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = None
    stop: str | list[str] | None = None
    n: int | None = Field(default=None, ge=1)
    reasoning_effort: str | None = None
    stream: bool | None = None
    stream_options: ChatStreamOptions | None = None

    @property
    def most_tokens(self) -> int | None:
        """The limit of the answer in tokens, under either of its names."""
        return self.max_completion_tokens or self.max_tokens


class ChatUsageDetails(_ChatModel):
    """Of the prompt's tokens, those that were cached."""

    cached_tokens: int = 0


class ChatUsage(_ChatModel):
    """What an answer cost, in tokens; cached ones are among the prompt's."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: ChatUsageDetails = Field(default_factory=ChatUsageDetails)


ChatFinish = Literal["stop", "length", "tool_calls", "content_filter"]


class ChatChoice(_ChatModel):
    """An answer; there is one."""

    index: int = 0
    message: ChatMessage
    finish_reason: ChatFinish = "stop"


class ChatCompletion(_ChatModel):
    """The body of an answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage = Field(default_factory=ChatUsage)


class ChatDelta(_ChatModel):
    """A piece of an answer."""

    role: Literal["assistant"] | None = None
    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    tool_calls: list[ChatCall] | None = None


class ChatChunkChoice(_ChatModel):
    """A piece of the answer; the last one says why it ended."""

    index: int = 0
    delta: ChatDelta
    finish_reason: ChatFinish | None = None


class ChatChunk(_ChatModel):
    """One event of a stream; the one with the usage has no choices."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: ChatUsage | None = None
