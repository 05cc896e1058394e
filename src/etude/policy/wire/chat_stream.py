"""Streamed chat completions: the pieces a server sends, and the body a client makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from etude.policy.wire.answer_stream import Said
from etude.policy.wire.chat import chat_usage, finish_reason, wire_call
from etude.policy.wire.chat_types import ChatCall, ChatChunk, ChatChunkChoice, ChatDelta, ChatFinish
from etude.policy.wire.errors import WireError
from etude.redact.keys import masked
from etude.trace.completion import Completion, Usage


@dataclass(frozen=True)
class ChatStream:
    """Writes one answer's chunks (a `WireStream`). `created` in Unix seconds; `usage`: the client asked what it cost."""

    id: str
    model: str
    created: int
    usage: bool = False

    def opening(self, usage: Usage) -> Iterator[dict[str, Any]]:
        yield self._chunk(ChatDelta(role="assistant", content=""))

    def piece(self, part: Said, text: str) -> Iterator[dict[str, Any]]:
        yield self._chunk(ChatDelta(content=text) if part == "text" else ChatDelta(reasoning_content=text))

    def closing(self, answer: Completion) -> Iterator[dict[str, Any]]:
        assert answer.message is not None
        for index, call in enumerate(answer.message.calls):
            yield self._chunk(ChatDelta(tool_calls=[wire_call(call, index)]))
        yield self._chunk(ChatDelta(), finish_reason(answer))
        if self.usage:
            common = {"id": self.id, "created": self.created, "model": self.model}
            yield _wire_form(ChatChunk(**common, choices=[], usage=chat_usage(answer.usage)))

    def _chunk(self, delta: ChatDelta, finish: ChatFinish | None = None) -> dict[str, Any]:
        choice = ChatChunkChoice(delta=delta, finish_reason=finish)
        return _wire_form(ChatChunk(id=self.id, created=self.created, model=self.model, choices=[choice]))


def _wire_form(chunk: ChatChunk) -> dict[str, Any]:
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
            raise WireError(f"the stream ended in an error: {masked(str(row['error']))[:300]}")
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
