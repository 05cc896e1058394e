"""Anthropic messages: the request, the answer, and the events of its stream (the API reference's "Messages", 2023-06-01).

Fields that we don't read are allowed in requests and kept in `model_extra`: a server that can't honour one must say so.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

StopReason = Literal["end_turn", "max_tokens", "tool_use", "stop_sequence", "pause_turn", "refusal"]


class _AnthropicModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class Block(_AnthropicModel):
    """A content block; `type` says which fields it has. Types that we have no words for are refused on conversion."""

    type: str
    text: str | None = None  # text
    thinking: str | None = None  # thinking, with the maker's signature
    signature: str | None = None
    id: str | None = None  # tool_use
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None  # tool_result
    content: str | list[Block] | None = None
    is_error: bool | None = None


class AnthropicMessage(_AnthropicModel):
    """One message of a request: results of tools are said by the user."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class AnthropicTool(_AnthropicModel):
    """A tool of the client; the server's own tools have another `type` and no schema."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] | None = None
    type: str | None = None


class MessagesRequest(_AnthropicModel):
    """The body of POST /v1/messages."""

    model: str
    messages: list[AnthropicMessage] = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    system: str | list[Block] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0)
    stop_sequences: list[str] | None = None
    thinking: dict[str, Any] | None = None
    stream: bool | None = None


class AnthropicUsage(_AnthropicModel):
    """What an answer cost, in tokens; unlike OpenAI's, `input_tokens` leaves out those that were cached."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class MessagesResponse(_AnthropicModel):
    """The body of an answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block]
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: AnthropicUsage = Field(default_factory=AnthropicUsage)
