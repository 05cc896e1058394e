"""An agent's request, in whatever format, and the refusal that it may get instead of an answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from etude.agent.chat.renderer import Effort
from etude.agent.policy.wire.responses_tools import Forms
from etude.core.redact.keys import mask_keys
from etude.core.trace.message import Message


@dataclass(frozen=True)
class Ask:
    """One request of an agent."""

    model: str  # what the agent calls the model: the endpoint has one, which answers to any name
    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()  # JSON-schema functions
    forms: Forms = field(default_factory=dict)  # how the agent names tools that are no plain functions
    failed: frozenset[str] = frozenset()  # ids of calls whose results the agent marks as errors
    max_tokens: int | None = None
    temperature: float = 1.0
    seed: int | None = None
    effort: Effort | None = None
    stream: bool = False
    stream_usage: bool = False
    one_call: bool = False  # the agent takes at most one tool call in an answer
    token_ids: bool = False  # the agent asks for the answer's tokens
    ignored: tuple[str, ...] = ()  # fields that were let through without effect


class ProxyRequestError(ValueError):
    """A request that gets an error instead of an answer; `status` is the HTTP status, the text says what to change."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(mask_keys(message))
        self.status = status
