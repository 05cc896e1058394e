"""The one protocol between the harness and whoever answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from etude.redact.keys import masked
from etude.trace.completion import Completion
from etude.trace.entry import Effort
from etude.trace.message import Message

# Told the pieces of a turn while it is sampled, by policies that have it in pieces: of its text, its thinking, or a call as the
# model writes it, in whatever spelling. An empty piece says that those before it are void, the turn begins anew.
Told = Callable[[Literal["text", "thinking", "call"], str], None]


@dataclass(frozen=True)
class Request:
    """One turn asked of a policy.

    A token policy (`takes_tokens`) reads `prompt_ids`, which start with exactly the tokens held so far in this segment
    (promise 2), and stops at one of `stop_ids`. A text policy reads `messages` and `tools` (JSON-schema function tools).
    """

    session_id: str
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    prompt_ids: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    max_tokens: int = 256
    temperature: float = 1.0
    seed: int | None = None
    effort: Effort = "medium"
    on_delta: Told | None = field(default=None, compare=False)  # None: nobody listens
    extra: dict[str, Any] = field(default_factory=dict)


class PolicyError(Exception):
    """The policy could not answer. `infra` says whose fault it is: True is ours (retry), False is the request's.

    The message holds no key: it goes to terminals, logs and sessions."""

    def __init__(self, message: str, *, infra: bool = True) -> None:
        super().__init__(masked(message))
        self.infra = infra


class StageError(Exception):
    """No attempt of the stage can be made: an endpoint that is gone, a budget that can't be kept, a setting that fits no attempt. It ends
    the stage, is never retried and never scored."""


class Policy(Protocol):
    """Answers turns. Calls may run concurrently; `release` tells that a session will not continue (its cache may go)."""

    name: str
    takes_tokens: bool

    async def complete(self, request: Request) -> Completion:
        """The next completion; raises PolicyError."""
        ...

    async def release(self, session_id: str) -> None: ...
