"""The words of a session: messages and tool calls, independent of any model's wire format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True)
class ToolCall:
    """One call of one tool. `id` is unique within its session; `arguments` are JSON values by parameter name."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Message:
    """One message. A tool message answers the call named by `call_id`; an assistant message may carry several calls."""

    role: Role
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
    # A malformed answer keeps what the parser objected to, so that the harness can tell the model and count the fault.
    problem: str | None = None
