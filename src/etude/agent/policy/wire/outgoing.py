"""A conversation on its way to an endpoint of chat completions: every request is one that a strict endpoint accepts.

Names of tools are those that endpoints allow, ids of calls are unique, a result follows the call that it answers, and what a provider
sent with a turn goes back to this provider alone. A model's broken name is its own slip, and it is informed by the call's result; sent
back as it came it would make every later request of the session fail.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from etude.core.trace.message import Message, ToolCall
from etude.core.trace.unicode import whole

# What OpenAI and those who follow it allow.
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_STRANGE = re.compile(r"[^a-zA-Z0-9_-]")
_ID_CHARS = 40
# A form of id that one provider demands (Mistral).
_NINE = re.compile(r"[a-zA-Z0-9]{9}")
_UNKEPT = "(thinking of another model, which was not kept)"


@dataclass(frozen=True)
class Outgoing:
    """How messages go to one provider. `strict_ids`: it refused ids as they came. `missing`: a field of thinking that it wants in every
    turn. `unwanted`: fields of messages that it refuses."""

    provider: str = ""
    strict_ids: bool = False
    missing: str = ""
    unwanted: frozenset[str] = frozenset()

    def rows(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """The request's `messages`."""
        names = _Ids(self)
        return [whole(self._row(message, names)) for message in messages]

    def _row(self, message: Message, ids: _Ids) -> dict[str, Any]:
        if message.role == "tool":
            if (id := ids.answered(message.call_id)) is None:
                return {"role": "user", "content": message.text}  # it answers no call: after a malformed turn
            return {"role": "tool", "tool_call_id": id, "content": message.text}
        row: dict[str, Any] = {"role": message.role, "content": _content(message)}
        if message.role == "assistant":
            row |= self._provided(message)
        if message.calls:
            row["tool_calls"] = [self._call(call, id, message) for call, id in ids.of_turn(message)]
        return row

    def _provided(self, message: Message) -> dict[str, Any]:
        """What the provider sent with the turn and gets back."""
        found: dict[str, Any] = {}
        if self._sent_by_it(message):
            found = {**message.opaque, **dict.fromkeys(message.thinking_fields, message.thinking)}
        if self.missing and not found.get(self.missing):
            found[self.missing] = (
                message.thinking if message.thinking and not self._sent_by_another(message) else _UNKEPT
            )
        return {key: value for key, value in found.items() if key not in self.unwanted}

    def _call(self, call: ToolCall, id: str, message: Message) -> dict[str, Any]:
        function = {"name": tool_name(call.name), "arguments": json.dumps(call.arguments)}
        row: dict[str, Any] = {"id": id, "type": "function", "function": function}
        if self._sent_by_it(message):
            more = {key: value for key, value in call.opaque.items() if key not in self.unwanted}
            function |= more.pop("function", {})
            row |= more
        return row

    def _sent_by_another(self, message: Message) -> bool:
        """Whether another provider sent the turn. Where none is named, the session is an older one, or an agent sends back what it got."""
        return message.provider not in ("", self.provider)

    def _sent_by_it(self, message: Message) -> bool:
        return bool(self.provider) and message.provider == self.provider


@dataclass
class _Ids:
    """The ids of calls as they are sent: unique, and as they came, where they are this provider's or where none is named."""

    how: Outgoing
    used: set[str] = field(default_factory=set)
    open: dict[str, deque[str]] = field(default_factory=lambda: defaultdict(deque))

    def of_turn(self, message: Message) -> list[tuple[ToolCall, str]]:
        self.open.clear()
        exact = not self.how.strict_ids and message.provider in ("", self.how.provider)
        pairs = [
            (call, self._unique(call.id if exact else _STRANGE.sub("_", call.id)[:_ID_CHARS])) for call in message.calls
        ]
        for call, id in pairs:
            self.open[call.id].append(id)
        return pairs

    def answered(self, call_id: str | None) -> str | None:
        """The sent id of the call that a result answers; of several calls of one id the first that has no answer yet."""
        pending = self.open.get(call_id) if call_id is not None else None
        return pending.popleft() if pending else None

    def _unique(self, id: str) -> str:
        id = fresh_id(id, self.used)
        self.used.add(id)
        return id


def fresh_id(id: str, used: set[str]) -> str:
    """The id, or one like it that is not used yet."""
    found, number = id, len(used)
    while not found or found in used:
        number += 1
        if _NINE.fullmatch(id):
            found = hashlib.sha256(f"{id}-{number}".encode()).hexdigest()[:9]
        else:
            found = f"{id[: _ID_CHARS - 8] or 'call'}-{number}"
    return found


def tool_name(name: str) -> str:
    """A tool's name as endpoints allow it."""
    return name if _NAME.fullmatch(name) else _STRANGE.sub("_", name)[:64] or "unnamed"


def _content(message: Message) -> str:
    # Some endpoints refuse an empty turn, which a model that was cut off while thinking leaves behind, and a stop without words.
    if not message.text.strip() and not message.calls:
        if message.role == "assistant":
            return "(nothing)"
        if message.delivery == "stop":
            return "(stopped here)"
    return message.text
