"""Streamed Anthropic messages: the events a server sends in their order, and the body a client makes of them.

message_start, (content_block_start, content_block_delta ..., content_block_stop) ..., message_delta, message_stop
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from etude.policy.wire.anthropic import answer_blocks, anthropic_usage, stop_reason
from etude.policy.wire.anthropic_types import AnthropicUsage, Block, MessagesResponse, StopReason
from etude.policy.wire.errors import WireError
from etude.trace.completion import Completion, Usage

# The field of a block that grows, and the delta that carries its pieces.
_GROWS = {"text": ("text", "text_delta"), "thinking": ("thinking", "thinking_delta")}


@dataclass
class MessagesStream:
    """Writes one answer's events: `opening`, then for each block `start`, `delta` and `stop`, then `closing`."""

    id: str
    model: str
    _index: int = -1

    def opening(self, usage: Usage) -> dict[str, Any]:
        """`usage` as far as it is known: the prompt's."""
        message = MessagesResponse(id=self.id, model=self.model, content=[], usage=anthropic_usage(usage))
        return {"type": "message_start", "message": message.model_dump()}

    def start(self, block: Block) -> dict[str, Any]:
        """A block begins, still empty: {type: text}, {type: thinking} or a call with its id and name."""
        self._index += 1
        empty: dict[str, Any] = {"input": {}} if block.type == "tool_use" else {_GROWS[block.type][0]: ""}
        shown = block.model_dump(exclude_none=True, include={"type", "id", "name", "signature"})
        return {"type": "content_block_start", "index": self._index, "content_block": {**shown, **empty}}

    def delta(self, kind: str, piece: str) -> dict[str, Any]:
        """A piece of the open block: of its text, its thinking, or its input as JSON text."""
        name, delta = _GROWS.get(kind, ("partial_json", "input_json_delta"))
        return {"type": "content_block_delta", "index": self._index, "delta": {"type": delta, name: piece}}

    def stop(self) -> dict[str, Any]:
        return {"type": "content_block_stop", "index": self._index}

    def closing(self, reason: StopReason, usage: Usage) -> Iterator[dict[str, Any]]:
        delta = {"stop_reason": reason, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": anthropic_usage(usage).model_dump()}
        yield {"type": "message_stop"}

    def whole(self, answer: Completion) -> Iterator[dict[str, Any]]:
        """An answer that is there already, as a stream."""
        assert answer.message is not None
        yield self.opening(answer.usage)
        for block in answer_blocks(answer.message):
            yield self.start(block)
            yield self.delta(block.type, block.text or block.thinking or json.dumps(block.input, ensure_ascii=False))
            yield self.stop()
        yield from self.closing(stop_reason(answer), answer.usage)


@dataclass
class MessagesAssembly:
    """Reads a stream. Pieces of the text and the thinking are given back for the eye; `body` is what `from_wire` reads."""

    _message: dict[str, Any] = field(default_factory=dict)
    _blocks: dict[int, dict[str, Any]] = field(default_factory=dict)
    _inputs: dict[int, str] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> tuple[str, str]:
        """One event's (text, thinking); events of unknown types are skipped, as the format demands. Raises WireError for an
        error told within the stream, and for a piece of a block that did not begin."""
        kind = event.get("type")
        if kind == "error":
            raise WireError(f"the stream ended in an error: {str(event.get('error'))[:300]}")
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
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
