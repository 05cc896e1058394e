"""Reads a streamed chat completion: the body that it would have been had it not been streamed.

Servers differ in what they leave out. Calls may come whole or in pieces, without an index, all with index 0, without ids or with one id;
the end may be marked by a reason, by `[DONE]`, or by the connection's end alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from etude.agent.policy.refusal import error_of, status_of
from etude.agent.policy.wire.chat_types import ChatCall, ChatDelta
from etude.agent.policy.wire.errors import ProviderError, StreamCut, WireError
from etude.agent.policy.wire.opaque import THINKING_FIELDS, fields_of_turn, joined_field
from etude.agent.policy.wire.parts import append_part, is_plain, text_of, thinking_of
from etude.agent.policy.wire.token_fields import IDS, ORIGIN, PROMPT


@dataclass
class ChatAssembly:
    """Pieces of the text and the thinking are given back for the eye; `from_wire` reads `body`."""

    finish: str | None = None
    done: bool = False  # [DONE] came
    usage: dict[str, Any] = field(default_factory=dict)
    _content: list[Any] = field(default_factory=list)
    _fields: dict[str, Any] = field(default_factory=dict)
    _calls: list[ChatCall] = field(default_factory=list)
    _tokens: dict[str, Any] = field(default_factory=dict)  # of the answer and of its choice (`token_fields.py`)
    _ids: list[Any] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)  # a server's index -> the place in `_calls` that it means now

    def add(self, row: dict[str, Any]) -> tuple[str, str]:
        """One chunk's (text, thinking). Raises ProviderError for an error in its place, ValidationError for what is no chunk."""
        if row.get("error") or row.get("object") == "error":
            raise ProviderError(status_of(row), error_of(row) or str(row))
        self.usage = _object(row.get("usage")) or self.usage
        self._tokens |= {PROMPT: row[PROMPT]} if PROMPT in row else {}
        text = thinking = ""
        for choice in _objects(row.get("choices")):
            # Some servers send the whole turn once more, or only once, as a message.
            delta = _object(choice.get("delta")) or ({} if self.began else _object(choice.get("message")))
            calls = [_plain(piece) for piece in _objects(delta.get("tool_calls"))]
            read = ChatDelta.model_validate(
                {**delta, "role": None, "reasoning_content": None, "tool_calls": calls}
            )  # fmt: skip
            content = read.content or delta.get("refusal")  # an answer of the model, in another field
            self._content = append_part(self._content, content)
            text += text_of(content)
            thinking += self._thought(delta) + thinking_of(read.content)
            for piece in read.tool_calls or []:
                self._call(piece)
            self.finish = str(choice.get("finish_reason") or "") or self.finish
            self._ids += _list(choice.get(IDS))
            self._tokens |= {ORIGIN: choice[ORIGIN]} if ORIGIN in choice else {}
        return text, thinking

    @property
    def began(self) -> bool:
        """Something of a turn came."""
        return bool(self._content or self._calls or self._fields)

    def body(self, *, trusting: bool = False) -> dict[str, Any]:
        """The answer as if it had not been streamed. Raises StreamCut if the stream broke off before its end. `trusting`: the
        connection's end counts as the turn's, as with servers that tell it in no other way."""
        if self.finish is None and not (self.began and (self.done or trusting)):
            raise StreamCut("the stream broke off before it gave a reason for its end", whole=self._whole())
        plain = is_plain(self._content)
        message = {
            "role": "assistant",
            "content": text_of(self._content) if plain else self._content,
            "tool_calls": [call.model_dump(exclude={"index"}) for call in self._calls],
            **self._fields,
        }
        finish = self.finish or ("tool_calls" if self._calls else "stop")
        choice = {"message": message, "finish_reason": finish}
        if ORIGIN in self._tokens:
            choice |= {ORIGIN: self._tokens[ORIGIN], IDS: self._ids}
        prompt = {PROMPT: self._tokens[PROMPT]} if PROMPT in self._tokens else {}
        return {"choices": [choice], "usage": self.usage, **prompt}

    def _whole(self) -> bool:
        """Whether what came could be a whole turn."""
        return self.began and all(_is_object(call.function.arguments or "{}") for call in self._calls)

    def _thought(self, delta: dict[str, Any]) -> str:
        """Keep the fields that this program does not read; the thinking among them."""
        new = fields_of_turn(delta)
        for name, value in new.items():
            self._fields[name] = joined_field(name, self._fields.get(name), value)
        texts = (new.get(name) for name in THINKING_FIELDS)
        return next((text for text in texts if isinstance(text, str) and text), "")

    def _call(self, piece: ChatCall) -> None:
        at = self._place(piece)
        held = self._calls[at] if at is not None else None
        if held is None or _begins(held, piece):
            self._calls.append(piece)
            if piece.index is not None:
                self._places[piece.index] = len(self._calls) - 1
            return
        held.id = held.id or piece.id
        held.function.name = held.function.name or piece.function.name
        for owner, other in ((held, piece), (held.function, piece.function)):
            _extend(owner, other)
        both = (held.function.arguments, piece.function.arguments)
        if both[0] == both[1] and _is_object(both[0]):
            return  # the same call sent twice
        if both[0] == "{}" and both[1]:
            both = (None, both[1])  # some servers begin with what they take for no arguments yet
        if all(isinstance(part, str | None) for part in both):
            held.function.arguments = "".join(part for part in both if isinstance(part, str))
        else:
            held.function.arguments = both[1] if both[1] is not None else both[0]

    def _place(self, piece: ChatCall) -> int | None:
        """The call that a piece may go on with: the one of its index and id, else of its id, else the last one."""
        at = None if piece.index is None else self._places.get(piece.index)
        if at is not None and piece.id in (None, "", self._calls[at].id):
            return at
        if piece.index is not None and at is None and piece.function.name:
            return None  # a new index and a name: another call, also where its id is that of the first
        of_id = [i for i, call in enumerate(self._calls) if piece.id and call.id == piece.id]
        if of_id or at is not None or piece.index is not None:
            return of_id[-1] if of_id else at
        return len(self._calls) - 1 if self._calls else None


def _extend(held: BaseModel, piece: BaseModel) -> None:
    """Add what a piece has in fields that this program does not read, whatever a server calls them."""
    if held.model_extra is not None:
        for name, value in (piece.model_extra or {}).items():
            held.model_extra[name] = joined_field(name, held.model_extra.get(name), value)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list. Raises WireError for a list of anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise WireError(f"the stream holds {str(value)[:80]!r} where a list of objects belongs")
    return value


def _plain(piece: dict[str, Any]) -> dict[str, Any]:
    """A piece of a call with texts where some servers send null, a number or a list."""
    function = {key: value for key, value in _object(piece.get("function")).items() if value is not None}
    if not isinstance(function.get("arguments"), str | dict | None):
        function["arguments"] = json.dumps(function["arguments"])
    if "name" in function:
        function["name"] = str(function["name"])
    id = piece.get("id")
    return {**piece, "id": None if id is None else str(id), "function": function}


def _begins(held: ChatCall, piece: ChatCall) -> bool:
    """Whether a piece begins another call than the one at its place: another id, another name, or arguments behind whole ones."""
    if piece.id and held.id and piece.id != held.id:
        return True
    if piece.function.name and held.function.name and piece.function.name != held.function.name:
        return True
    if not piece.function.name or not _is_object(held.function.arguments) or not piece.function.arguments:
        return False
    another = held.function.arguments != piece.function.arguments and _is_object(piece.function.arguments)
    return another or not (piece.id and held.id)


def _is_object(arguments: Any) -> bool:
    """Whether they are all that a call needs."""
    if isinstance(arguments, dict):
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (TypeError, ValueError, RecursionError):
        return False
