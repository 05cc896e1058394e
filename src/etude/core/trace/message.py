"""The words of a session: messages and tool calls, independent of any model's wire format."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from etude.core.trace.plain_json import plain
from etude.core.trace.unicode import is_whole, whole

Role = Literal["system", "user", "assistant", "tool"]
# A user message that came while the agent worked. steer: shown before the next turn; queue: shown when the agent has
# finished; stop: the turn was broken off (the text may be empty).
Delivery = Literal["steer", "queue", "stop"]

# The `problem` of a turn without an end, whatever format it came in.
CUT_OFF = "the turn was cut off before its end"
# Turns that are no answer: the agent asks again once, then the request has failed.
EMPTY = "the turn holds neither text nor a call"
FILTERED = "the provider's content filter ended the turn"
FAILED = "the provider ended the turn with an error"
NO_ANSWER = frozenset({EMPTY, FILTERED, FAILED})


@dataclass(frozen=True)
class ToolCall:
    """One call of one tool. `id` is unique within its session; `arguments` are JSON values by parameter name. `opaque` are the
    fields that only the provider of its message understands; calls that say the same are equal whatever these are.

    Both are plain (`plain_json`): who reads a model's call says what is wrong with it first; here the rest becomes null."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    opaque: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", whole(plain(self.arguments)))
        object.__setattr__(self, "opaque", whole(plain(self.opaque)))
        _make_whole(self, "id", "name")

    def to_json(self) -> dict[str, Any]:
        """JSON values; `opaque` is left out where it is empty."""
        row = {"id": self.id, "name": self.name, "arguments": self.arguments}
        return {**row, "opaque": self.opaque} if self.opaque else row


@dataclass(frozen=True)
class Message:
    """One message. A tool message answers the call named by `call_id`; an assistant message may carry several calls.

    No text of it holds a lone surrogate, whatever it was made from: a request that carries one can't be sent, nor can any later
    request of that session."""

    role: Role
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    # A malformed answer keeps what the parser objected to, so that the harness can tell the model and count the fault.
    problem: str | None = None
    # A user message of the self-summary: the query that asks for one, or the one that carries it into the next segment.
    summary: bool = False
    # How a user message arrived that did not open the session; None: it did, or the harness itself wrote it.
    delivery: Delivery | None = None
    # Of a turn that an endpoint sent: which one (its address and model), under which names it sent the thinking, and the fields
    # that only it understands (signatures). They go back to this provider as they came, and to no other.
    provider: str = field(default="", compare=False)
    thinking_fields: tuple[str, ...] = field(default=(), compare=False)
    opaque: dict[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "opaque", whole(plain(self.opaque)))
        _make_whole(self, "text", "thinking", "call_id", "problem", "provider")

    @property
    def fault(self) -> str | None:
        """What is wrong with an assistant's turn: its `problem`, or that it says and calls nothing."""
        if self.problem is None and not self.calls and not self.text.strip():
            return EMPTY
        return self.problem

    def as_provided(self, turn: Message) -> Message:
        """This turn with what the provider of `turn`, which says the same, sent with it: thinking and opaque fields. A turn that makes
        other calls, or came from no provider, adds nothing."""
        if not turn.provider or [call.name for call in turn.calls] != [call.name for call in self.calls]:
            return self
        calls = tuple(replace(own, opaque=sent.opaque) for own, sent in zip(self.calls, turn.calls, strict=True))
        fields = {"provider": turn.provider, "thinking_fields": turn.thinking_fields, "opaque": turn.opaque}
        return replace(self, thinking=turn.thinking, calls=calls, **fields)

    def to_json(self) -> dict[str, Any]:
        """JSON values; fields at their default are left out."""
        row: dict[str, Any] = {"role": self.role, "text": self.text}
        for key in ("thinking", "call_id", "problem", "summary", "delivery", "provider", "opaque"):
            if value := getattr(self, key):
                row[key] = value
        if self.calls:
            row["calls"] = [call.to_json() for call in self.calls]
        if self.thinking_fields:
            row["thinking_fields"] = list(self.thinking_fields)
        return row

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Message:
        """The inverse of `to_json`; an unknown key raises TypeError."""
        calls = tuple(ToolCall(**call) for call in row.get("calls", ()))
        return cls(**{**row, "calls": calls, "thinking_fields": tuple(row.get("thinking_fields", ()))})


def _make_whole(value: ToolCall | Message, *names: str) -> None:
    """Replace the lone surrogates of some fields, in the constructor of a frozen dataclass."""
    for name in names:
        text = getattr(value, name)
        if text is not None and not is_whole(text):
            object.__setattr__(value, name, whole(text))
