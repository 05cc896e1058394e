"""The one protocol between the harness and a policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from etude.core.redact.keys import mask_keys
from etude.core.trace.completion import Completion
from etude.core.trace.entry import Effort
from etude.core.trace.message import Message

# Hears the pieces of a turn while it is sampled, from policies that have it in pieces: of its text, its thinking, or a call as the
# model writes it, in whatever spelling. An empty piece says that those before it are void: the turn starts again.
StreamCallback = Callable[[Literal["text", "thinking", "call"], str], None]


@dataclass(frozen=True)
class RetryWait:
    """A turn is asked for again after `seconds`: `number` of at most `of` repetitions, because of `reason`."""

    reason: str
    seconds: float
    number: int
    of: int


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
    on_delta: StreamCallback | None = field(default=None, compare=False)  # None: no streaming
    on_wait: Callable[[RetryWait], None] | None = field(default=None, compare=False)
    # Called now and then while an engine of ours works, so that a slow turn is not taken for one that hangs.
    on_alive: Callable[[], None] | None = field(default=None, compare=False)
    extra: dict[str, Any] = field(default_factory=dict)


class PolicyError(Exception):
    """The policy could not answer. `infra` says whose fault it is: True is ours (retry), False is the request's.

    `status` is the HTTP status of an endpoint's refusal, and `refusal` its words. No text of it holds a key: they go to terminals,
    logs and sessions."""

    def __init__(self, message: str, *, infra: bool = True, status: int | None = None, refusal: str = "") -> None:
        super().__init__(mask_keys(message))
        self.infra = infra
        self.status = status
        self.refusal = mask_keys(refusal)


class ContextOverflow(PolicyError):
    """The conversation is longer than the model's window. `window_tokens` and `prompt_tokens` are what the refusal says of them."""

    def __init__(
        self, message: str, *, window_tokens: int | None = None, prompt_tokens: int | None = None, status: int | None = None,
        refusal: str = "",
    ) -> None:  # fmt: skip
        super().__init__(message, infra=False, status=status, refusal=refusal)
        self.window_tokens = window_tokens
        self.prompt_tokens = prompt_tokens


@runtime_checkable
class WindowedPolicy(Protocol):
    """A policy that knows its model's window."""

    window_tokens: int | None  # prompt and answer together; None: not known yet


@runtime_checkable
class RenderingPolicy(Protocol):
    """A policy whose server renders messages itself and returns the tokens."""

    served_chat: str  # the fingerprint of the server's chat format; "": it returns no tokens


def served_chat_of(policy: Policy) -> str:
    """The fingerprint of the chat format that the policy's server renders with, if it returns tokens; else ""."""
    return policy.served_chat if isinstance(policy, RenderingPolicy) else ""


def window_of(policy: Policy) -> int | None:
    """The window of a policy's model, where it is known and messages are sent: a token policy's engine looks after its own."""
    return policy.window_tokens if isinstance(policy, WindowedPolicy) and not policy.takes_tokens else None


class FatalStageError(Exception):
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
