"""A policy that fails on purpose: wraps another and injects faults from a seed. The same seed, session and turn always
give the same fault, whatever else runs at the time, so a failing test replays exactly."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, replace

from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Completion
from etude.core.trace.message import CUT_OFF


@dataclass(frozen=True)
class ChaosRates:
    """Probabilities per turn, tried in this order; what is left over answers faithfully."""

    infra: float = 0.0  # PolicyError that is ours: to be retried
    refuse: float = 0.0  # PolicyError that is the request's
    abort: float = 0.0  # a completion the engine gave up
    cut: float = 0.0  # a completion that lost its second half
    slow: float = 0.0  # answers after `slow_s`
    slow_s: float = 0.05


class ChaosPolicy:
    """`injected` counts the faults by name."""

    def __init__(self, inner: Policy, rates: ChaosRates, seed: int) -> None:
        self.name = f"chaos({inner.name})"
        self.takes_tokens = inner.takes_tokens
        self.injected: Counter[str] = Counter()
        self._inner = inner
        self._rates = rates
        self._seed = seed
        self._turns: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        fault = self._draw(request.session_id)
        if fault:
            self.injected[fault] += 1
        if fault in ("infra", "refuse"):
            raise PolicyError(f"injected: {fault}", infra=fault == "infra")
        if fault == "slow":
            await asyncio.sleep(self._rates.slow_s)
        answer = await self._inner.complete(request)
        if fault == "abort":
            return replace(answer, finish="abort")
        return _cut(answer) if fault == "cut" else answer

    async def release(self, session_id: str) -> None:
        self._turns.pop(session_id, None)
        await self._inner.release(session_id)

    def _draw(self, session_id: str) -> str:
        self._turns[session_id] += 1
        point = random.Random(f"{self._seed}/{session_id}/{self._turns[session_id]}").random()
        for name in ("infra", "refuse", "abort", "cut", "slow"):
            point -= getattr(self._rates, name)
            if point < 0:
                return name
        return ""


def _cut(answer: Completion) -> Completion:
    """As if the token limit had come half-way."""
    tokens, message = answer.tokens, answer.message
    if tokens is not None:
        n = len(tokens.ids) // 2
        routes = (
            tokens.routes[: max(0, len(tokens.routes) - (len(tokens.ids) - n))] if tokens.routes is not None else None
        )
        tokens = replace(
            tokens, ids=tokens.ids[:n], logprobs=tokens.logprobs[:n], versions=tokens.versions[:n], routes=routes
        )
    if message is not None:
        half = message.text[: len(message.text) // 2]
        message = replace(message, text=half, calls=(), problem=CUT_OFF)
    return replace(answer, message=message, tokens=tokens, finish="length")
