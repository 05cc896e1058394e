"""What models cost while they install a project: a bill for each project, and the bounds beyond which none is asked any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Completion, Usage

# Dollars of one turn; None if the price is unknown.
Dollars = Callable[[Usage], float | None]


@dataclass(frozen=True)
class SessionLimits:
    """Of one session. `dollars` holds only where the price is known."""

    turns: int = 60
    tokens: int = 1_000_000
    seconds: float = 1800.0
    dollars: float | None = None


@dataclass
class Spent:
    """`dollars` is None once a turn had no price."""

    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    dollars: float | None = 0.0

    def add(self, usage: Usage, dollars: float | None) -> None:
        self.turns += 1
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.dollars = None if dollars is None or self.dollars is None else self.dollars + dollars

    def to_record(self) -> dict[str, Any]:
        dollars = None if self.dollars is None else round(self.dollars, 6)
        return {**vars(self), "dollars": dollars}


@dataclass
class Bill:
    """By project; setter, builder and judge write on one."""

    projects: dict[str, Spent] = field(default_factory=dict)

    def of(self, project: str) -> Spent:
        return self.projects.setdefault(project, Spent())


class OverBudget(PolicyError):
    """A bound of the session is reached: the model's own end, no fault of ours."""

    def __init__(self, message: str) -> None:
        super().__init__(message, infra=False)


class MeteredPolicy:
    """A policy for one session, with every turn on the bill. Raises OverBudget in place of a turn beyond the limits."""

    def __init__(self, policy: Policy, limits: SessionLimits, bill: Spent, dollars: Dollars) -> None:
        self.name, self.takes_tokens = policy.name, policy.takes_tokens
        self.own, self.over = Spent(), ""
        self._policy, self._limits, self._bill, self._dollars = policy, limits, bill, dollars
        self._until = time.monotonic() + limits.seconds

    @property
    def turns_left(self) -> int:
        return max(0, self._limits.turns - self.own.turns)

    async def complete(self, request: Request) -> Completion:
        self.over = self._reached()
        if self.over:
            raise OverBudget(self.over)
        answer = await self._policy.complete(request)
        usage = answer.usage
        if answer.tokens is not None and usage.input_tokens + usage.output_tokens == 0:
            usage = Usage(len(request.prompt_ids), 0, len(answer.tokens.ids), usage.seconds)
        dollars = self._dollars(usage)
        self.own.add(usage, dollars)
        self._bill.add(usage, dollars)
        return answer

    async def release(self, session_id: str) -> None:
        await self._policy.release(session_id)

    def _reached(self) -> str:
        """Which bound, with its value; empty if none."""
        own, most = self.own, self._limits
        if own.turns >= most.turns:
            return f"its {most.turns} turns are used up"
        if own.input_tokens + own.output_tokens >= most.tokens:
            return f"its {most.tokens} tokens are used up"
        if time.monotonic() >= self._until:
            return f"its {most.seconds:.0f} seconds are over"
        if most.dollars is not None and own.dollars is not None and own.dollars >= most.dollars:
            return f"its ${most.dollars:.2f} are spent"
        return ""
