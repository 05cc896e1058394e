"""Streamed chat completions: the pieces a server sends, and the body a client makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from etude.policy.wire.chat import chat_usage, finish_reason, wire_call
from etude.policy.wire.chat_types import ChatCall, ChatChunk, ChatChunkChoice, ChatDelta, ChatFinish
from etude.policy.wire.errors import WireError
from etude.trace.completion import Completion, Usage
from etude.trace.message import ToolCall


@dataclass(frozen=True)
class ChatStream:
    """Writes one answer's pieces: `opening`, any of `thinking`, `text` and `call`, then `closing`. `created` in Unix seconds."""

    id: str
    model: str
    created: int

    def opening(self) -> ChatChunk:
        return self._chunk(ChatDelta(role="assistant", content=""))

    def text(self, piece: str) -> ChatChunk:
        return self._chunk(ChatDelta(content=piece))

    def thinking(self, piece: str) -> ChatChunk:
        return self._chunk(ChatDelta(reasoning_content=piece))

    def call(self, index: int, call: ToolCall) -> ChatChunk:
        """A whole call: calls are parsed from whole turns."""
        return self._chunk(ChatDelta(tool_calls=[wire_call(call, index)]))

    def closing(self, finish: ChatFinish, usage: Usage | None) -> Iterator[ChatChunk]:
        """Why it ended and, if the client asked for it, what it cost."""
        yield self._chunk(ChatDelta(), finish)
        if usage is not None:
            common = {"id": self.id, "created": self.created, "model": self.model}
            yield ChatChunk(**common, choices=[], usage=chat_usage(usage))

    def whole(self, answer: Completion, *, usage: bool) -> Iterator[ChatChunk]:
        """An answer that is there already, as a stream."""
        message = answer.message
        assert message is not None
        yield self.opening()
        if message.thinking:
            yield self.thinking(message.thinking)
        if message.text:
            yield self.text(message.text)
        for index, call in enumerate(message.calls):
            yield self.call(index, call)
        yield from self.closing(finish_reason(answer), answer.usage if usage else None)

    def _chunk(self, delta: ChatDelta, finish: ChatFinish | None = None) -> ChatChunk:
        choice = ChatChunkChoice(delta=delta, finish_reason=finish)
        return ChatChunk(id=self.id, created=self.created, model=self.model, choices=[choice])


def wire_form(chunk: ChatChunk) -> dict[str, Any]:
    """A chunk as it is sent: without the fields that say nothing, but with `finish_reason`, which clients look for."""
    row = chunk.model_dump(exclude_none=True)
    for choice in row["choices"]:
        choice.setdefault("finish_reason", None)
    return row


@dataclass
class ChatAssembly:
    """Reads a stream. Pieces of the text and the thinking are given back for the eye; `body` is what `from_wire` reads."""

    text: str = ""
    thinking: str = ""
    finish: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    calls: dict[int, ChatCall] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> tuple[str, str]:
        """One chunk's (text, thinking). Raises WireError for an error told within the stream, ValidationError for no chunk."""
        if "error" in row:
            raise WireError(f"the stream ended in an error: {str(row['error'])[:300]}")
        self.usage = row.get("usage") or self.usage
        text = thinking = ""
        for choice in row.get("choices") or []:
            delta = ChatDelta.model_validate({**(choice.get("delta") or {}), "role": None})
            text += delta.content or ""
            thinking += delta.reasoning_content or (delta.model_extra or {}).get("reasoning") or ""
            for piece in delta.tool_calls or []:
                self._call(piece)
            self.finish = choice.get("finish_reason") or self.finish
        self.text += text
        self.thinking += thinking
        return text, thinking

    def body(self) -> dict[str, Any]:
        """The answer as if it had not been streamed. Raises WireError if the stream broke off before its end."""
        if self.finish is None:
            raise WireError("the stream broke off before it said why it ended")
        message = {
            "role": "assistant",
            "content": self.text,
            "reasoning_content": self.thinking,
            "tool_calls": [self.calls[i].model_dump(exclude={"index"}) for i in sorted(self.calls)],
        }
        return {"choices": [{"message": message, "finish_reason": self.finish}], "usage": self.usage}

    def _call(self, piece: ChatCall) -> None:
        """Some servers send every call whole and without an index, or with the same one: a new id is a new call."""
        index = piece.index if piece.index is not None else max(0, len(self.calls) - (piece.id is None))
        held = self.calls.get(index)
        if held is not None and piece.id and held.id and piece.id != held.id:
            index, held = max(self.calls) + 1, None
        if held is None:
            self.calls[index] = piece
            return
        held.id = held.id or piece.id
        held.function.name = held.function.name or piece.function.name
        both = (held.function.arguments, piece.function.arguments)
        if all(isinstance(part, str | None) for part in both):
            held.function.arguments = "".join(part for part in both if isinstance(part, str))
