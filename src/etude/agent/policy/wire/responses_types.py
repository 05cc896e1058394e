"""OpenAI responses: the request, the answer and its items (the API reference's "Responses").

Fields that we don't read are allowed in requests and kept in `model_extra`: a server that can't honour one must say so.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _ResponsesModel(BaseModel):
    model_config = ConfigDict(extra="allow")


class ResponsePart(_ResponsesModel):
    """A part of a message's content: input_text, output_text, or a kind that we have no words for."""

    type: str
    text: str | None = None


class ResponseItem(_ResponsesModel):
    """An item of the input or the output; `type` says which fields it has. A message may leave its type out."""

    type: str = "message"
    id: str | None = None
    status: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None  # message
    content: str | list[ResponsePart] | None = None
    summary: list[ResponsePart] | None = None  # reasoning
    call_id: str | None = None  # function_call, custom_tool_call, and their outputs
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None  # function_call
    input: str | None = None  # custom_tool_call
    output: str | list[ResponsePart] | None = None


class ReasoningOptions(_ResponsesModel):
    """How hard to think."""

    effort: str | None = None


class ResponsesRequest(_ResponsesModel):
    """The body of POST /v1/responses."""

    model: str
    input: str | list[ResponseItem]
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    temperature: float | None = Field(default=None, ge=0)
    max_output_tokens: int | None = Field(default=None, ge=1)
    reasoning: ReasoningOptions | None = None
    previous_response_id: str | None = None
    stream: bool | None = None


class InputDetails(_ResponsesModel):
    """Of the input's tokens, those that were cached, and those that were put there."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputDetails(_ResponsesModel):
    """Of the output's tokens, those of thinking: they are not counted apart here."""

    reasoning_tokens: int = 0


class ResponsesUsage(_ResponsesModel):
    """What an answer cost, in tokens; cached ones are among the input's."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_details: InputDetails = Field(default_factory=InputDetails)
    output_tokens_details: OutputDetails = Field(default_factory=OutputDetails)


class Response(_ResponsesModel):
    """The body of an answer."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"] = "completed"
    incomplete_details: dict[str, str] | None = None
    error: dict[str, Any] | None = None
    output: list[ResponseItem] = Field(default_factory=list)
    usage: ResponsesUsage | None = None
