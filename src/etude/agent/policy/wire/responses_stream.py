"""Streamed OpenAI responses: the events a server sends in their order, each with its `type` and `sequence_number`.

created, in_progress, (output_item.added, (part.added, delta ..., done, part.done), output_item.done) ..., completed
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from etude.agent.policy.wire.answer_stream import TurnPart
from etude.agent.policy.wire.responses import response_of, text_item, thinking_item, wire_form
from etude.agent.policy.wire.responses_tools import Forms, call_item
from etude.agent.policy.wire.responses_types import Response, ResponseItem
from etude.core.trace.completion import Completion, Usage

Event = dict[str, Any]
# What is called how for each part: the events of its text, those of its place, and the place itself.
_TEXTS: dict[TurnPart, str] = {"text": "response.output_text", "thinking": "response.reasoning_summary_text"}
_PARTS: dict[TurnPart, str] = {"text": "response.content_part", "thinking": "response.reasoning_summary_part"}
_PLACES: dict[TurnPart, dict[str, Any]] = {"text": {"content_index": 0}, "thinking": {"summary_index": 0}}
_ODDS: dict[TurnPart, dict[str, Any]] = {"text": {"logprobs": []}, "thinking": {}}
_INPUTS = {
    "function_call": ("response.function_call_arguments", "arguments"),
    "custom_tool_call": ("response.custom_tool_call_input", "input"),
}


@dataclass
class ResponsesStream:
    """Writes one answer's events (a `WireStream`). `created_at` in Unix seconds."""

    id: str
    model: str
    created_at: int
    forms: Forms = field(default_factory=dict)
    one_call: bool = False  # the request asks for at most one tool call
    _items: list[ResponseItem] = field(default_factory=list)
    _open: TurnPart | None = None
    _id: str = ""  # of the open item
    _said: str = ""
    _number: int = 0

    def opening(self, usage: Usage) -> Iterator[Event]:
        begun = Response(id=self.id, created_at=self.created_at, model=self.model, status="in_progress")
        yield self._event("response.created", response=wire_form(begun, one_call=self.one_call))
        yield self._event("response.in_progress", response=wire_form(begun, one_call=self.one_call))

    def piece(self, part: TurnPart, text: str) -> Iterator[Event]:
        if part != self._open:
            yield from self._done()
            self._open, self._id = part, self._new_id(part)
            item = self._item(part)
            yield self._added(item, status="in_progress")
            yield self._at(f"{_PARTS[part]}.added", self._id, **_PLACES[part], part=_part(item))
        self._said += text
        yield self._at(f"{_TEXTS[part]}.delta", self._id, **_PLACES[part], **_ODDS[part], delta=text)

    def closing(self, answer: Completion) -> Iterator[Event]:
        assert answer.message is not None
        yield from self._done()
        for i, call in enumerate(answer.message.calls):
            item = call_item(f"fc_{self.id}_{i}", call, self.forms)
            name, key = _INPUTS[item.type]
            row = item.model_dump(exclude_none=True)
            yield self._added(item, status="in_progress", **{key: ""})
            yield self._at(f"{name}.delta", row["id"], delta=row[key])
            yield self._at(f"{name}.done", row["id"], name=item.name, **{key: row[key]})
            yield self._over(item)
        whole = response_of(self._items, answer, id=self.id, model=self.model, created_at=self.created_at)
        end = "response.incomplete" if whole.status == "incomplete" else "response.completed"
        yield self._event(end, response=wire_form(whole, one_call=self.one_call))

    def _done(self) -> Iterator[Event]:
        """Ends the open text or thinking."""
        part = self._open
        if part is None:
            return
        item = self._item(part)
        yield self._at(f"{_TEXTS[part]}.done", self._id, **_PLACES[part], **_ODDS[part], text=self._said)
        yield self._at(f"{_PARTS[part]}.done", self._id, **_PLACES[part], part=_part(item))
        self._open, self._said = None, ""
        yield self._over(item)

    def _item(self, part: TurnPart) -> ResponseItem:
        """The open item as far as it was said."""
        return (text_item if part == "text" else thinking_item)(self._id, self._said)

    def _new_id(self, part: TurnPart) -> str:
        """A turn that goes back to thinking has several items of a kind."""
        kind = "msg" if part == "text" else "rs"
        again = sum((item.id or "").startswith(kind) for item in self._items)
        return f"{kind}_{self.id}" + (f"_{again}" if again else "")

    def _added(self, item: ResponseItem, **changed: Any) -> Event:
        row = {**item.model_dump(exclude_none=True), **changed}
        row |= {key: [] for key in ("content", "summary") if key in row}
        return self._event("response.output_item.added", output_index=len(self._items), item=row)

    def _over(self, item: ResponseItem) -> Event:
        self._items.append(item)
        row = item.model_dump(exclude_none=True)
        return self._event("response.output_item.done", output_index=len(self._items) - 1, item=row)

    def _at(self, kind: str, id: str, **fields: Any) -> Event:
        return self._event(kind, output_index=len(self._items), item_id=id, **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": kind, **fields, "sequence_number": self._number - 1}


def _part(item: ResponseItem) -> dict[str, Any]:
    parts = item.content if isinstance(item.content, list) else item.summary or []
    return parts[0].model_dump(exclude_none=True)
