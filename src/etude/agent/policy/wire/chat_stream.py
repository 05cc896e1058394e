"""Streamed chat completions: the pieces a server sends (`chat_assembly.py`: the body a client makes of them)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from etude.agent.policy.wire.answer_stream import TurnPart
from etude.agent.policy.wire.chat import chat_usage, finish_reason, wire_call
from etude.agent.policy.wire.chat_types import ChatChunk, ChatChunkChoice, ChatDelta, ChatFinish
from etude.agent.policy.wire.token_fields import token_fields
from etude.core.trace.completion import Completion, Usage


@dataclass(frozen=True)
class ChatStream:
    """Writes one answer's chunks (a `WireStream`). `created` in Unix seconds; `usage`: the client asked what it cost,
    `token_ids`: for its tokens, which come with the end."""

    id: str
    model: str
    created: int
    usage: bool = False
    token_ids: bool = False

    def opening(self, usage: Usage) -> Iterator[dict[str, Any]]:
        yield self._chunk(ChatDelta(role="assistant", content=""))

    def piece(self, part: TurnPart, text: str) -> Iterator[dict[str, Any]]:
        yield self._chunk(ChatDelta(content=text) if part == "text" else ChatDelta(reasoning_content=text))

    def closing(self, answer: Completion) -> Iterator[dict[str, Any]]:
        assert answer.message is not None
        for index, call in enumerate(answer.message.calls):
            yield self._chunk(ChatDelta(tool_calls=[wire_call(call, index)]))
        last = self._chunk(ChatDelta(), finish_reason(answer))
        if self.token_ids and answer.tokens is not None:
            of_answer, of_choice = token_fields(answer.prompt_ids, answer.tokens)
            last["choices"][0] |= of_choice
            last |= of_answer
        yield last
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
