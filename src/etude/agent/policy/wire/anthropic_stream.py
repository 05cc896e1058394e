"""Streamed Anthropic messages: the events a server sends in their order, and the body a client makes of them.

message_start, (content_block_start, content_block_delta ..., content_block_stop) ..., message_delta, message_stop
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from etude.agent.policy.wire.answer_stream import TurnPart
from etude.agent.policy.wire.anthropic import anthropic_usage, stop_reason
from etude.agent.policy.wire.anthropic_types import AnthropicUsage, MessagesResponse
from etude.agent.policy.wire.errors import WireError
from etude.core.redact.keys import mask_keys
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.plain_json import parse

_DELTAS: dict[TurnPart, str] = {"text": "text_delta", "thinking": "thinking_delta"}


@dataclass
class MessagesStream:
    """Writes one answer's events (a `WireStream`)."""

    id: str
    model: str
    _index: int = -1
    _open: TurnPart | None = None

    def opening(self, usage: Usage) -> Iterator[dict[str, Any]]:
        message = MessagesResponse(id=self.id, model=self.model, content=[], usage=anthropic_usage(usage))
        yield {"type": "message_start", "message": message.model_dump()}

    def piece(self, part: TurnPart, text: str) -> Iterator[dict[str, Any]]:
        if part != self._open:
            yield from self._stopped()
            self._open = part
            yield self._start({"type": "text", "text": ""} if part == "text" else _UNSIGNED)
        yield self._delta({"type": _DELTAS[part], part: text})

    def closing(self, answer: Completion) -> Iterator[dict[str, Any]]:
        assert answer.message is not None
        yield from self._stopped()
        for call in answer.message.calls:
            yield self._start({"type": "tool_use", "id": call.id, "name": call.name, "input": {}})
            written = json.dumps(call.arguments, ensure_ascii=False)
            yield self._delta({"type": "input_json_delta", "partial_json": written})
            yield {"type": "content_block_stop", "index": self._index}
        delta = {"stop_reason": stop_reason(answer), "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": anthropic_usage(answer.usage).model_dump()}
        yield {"type": "message_stop"}

    def _start(self, block: dict[str, Any]) -> dict[str, Any]:
        self._index += 1
        return {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _stopped(self) -> Iterator[dict[str, Any]]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}


_UNSIGNED = {"type": "thinking", "thinking": "", "signature": ""}


@dataclass
class MessagesAssembly:
    """Reads a stream. Pieces of the text and the thinking are given back for the eye; `body` is the input of `from_wire`."""

    _message: dict[str, Any] = field(default_factory=dict)
    _blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _inputs: dict[int, str] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> tuple[str, str]:
        """One event's (text, thinking); events of unknown types are skipped, as the format demands. Raises WireError for an
        error reported within the stream, and for a piece of a block that did not begin."""
        kind = event.get("type")
        if kind == "error":
            raise WireError(f"the stream ended in an error: {mask_keys(str(event.get('error')))[:300]}")
        if kind == "message_start":
            self._message = {**event["message"]}
        elif kind == "content_block_start":
            self._blocks[event["index"]] = {**event["content_block"]}
        elif kind == "content_block_delta":
            return self._delta(event["index"], event["delta"])
        elif kind == "message_delta":
            self._message.update(event["delta"])
            self._message["usage"] = {**self._message.get("usage", {}), **(event.get("usage") or {})}
        return "", ""

    def body(self) -> dict[str, Any]:
        """The answer as if it had not been streamed. Raises WireError if the stream broke off. An input that is no JSON
        object stays as `partial_json`: the model's doing, hence a malformed turn."""
        if self._message.get("stop_reason") is None:
            raise WireError("the stream broke off before it said why it ended")
        for index, text in self._inputs.items():
            value = _input(text)
            self._blocks[index] |= {"input": value} if value is not None else {"input": None, "partial_json": text}
        usage = AnthropicUsage.model_validate(self._message.get("usage") or {})
        blocks = [self._blocks[i] for i in sorted(self._blocks)]
        return {**self._message, "content": blocks, "usage": usage.model_dump()}

    def _delta(self, index: int, delta: dict[str, Any]) -> tuple[str, str]:
        block = self._blocks.get(index)
        if block is None:
            raise WireError(f"the stream holds a piece of block {index}, which did not begin")
        if delta["type"] == "input_json_delta":
            self._inputs[index] = self._inputs.get(index, "") + delta["partial_json"]
        for name, kind in (("text", "text_delta"), ("thinking", "thinking_delta"), ("signature", "signature_delta")):
            if delta["type"] == kind:
                block[name] = (block.get(name) or "") + delta[name]
        return delta.get("text", ""), delta.get("thinking", "")


def _input(text: str) -> dict[str, Any] | None:
    try:
        value = parse(text or "{}")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
