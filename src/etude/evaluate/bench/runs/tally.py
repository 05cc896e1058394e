"""What each attempt costs: tokens as the policy reports them, and core-seconds where it computes in this process.

Every turn that cost tokens is a line of `usage.jsonl` at once, so that a kill loses at most the turns in flight and a budget
holds across runs. An attempt is charged for the try that was scored; tries lost to faults of ours are in the file alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from etude.evaluate.bench.runs.folder import append_line
from etude.agent.policy.protocol import Policy, Request
from etude.core.trace.completion import Completion, Usage


@dataclass
class Charge:
    """One try of an attempt. `unreported` turns came without usage."""

    turns: int = 0
    unreported: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    core_seconds: float = 0.0

    def add(self, usage: Usage) -> None:
        self.turns += 1
        self.unreported += usage.input_tokens + usage.output_tokens == 0
        self.input_tokens += usage.input_tokens
        self.cached_tokens += usage.cached_tokens
        self.cache_write_tokens += usage.cache_write_tokens
        self.output_tokens += usage.output_tokens

    @property
    def is_complete(self) -> bool:
        """Whether every turn reported its usage."""
        return self.turns > 0 and not self.unreported


class CoreClock:
    """This process' core-seconds, shared alike among the turns in flight while they pass: batched decoding serves all its rows
    at once. Their sum equals the process' use while any turn waited for an answer."""

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self._last = clock()
        self._flying: dict[object, float] = {}

    def begin(self) -> object:
        """A turn is asked."""
        self._pass()
        turn = object()
        self._flying[turn] = 0.0
        return turn

    def end(self, turn: object) -> float:
        """It is answered, or failed: its core-seconds."""
        self._pass()
        return self._flying.pop(turn)

    def _pass(self) -> None:
        now = self._clock()
        for turn in self._flying:
            self._flying[turn] += (now - self._last) / len(self._flying)
        self._last = now


@dataclass
class ParticipantUsage:
    """The charges of one participant's sessions, by session id (`<attempt>.<try>`). `pay(attempt, usage)` may raise to stop all."""

    key: str
    path: Path
    engine: bool = False
    pay: Callable[[str, Usage], None] = lambda attempt, usage: None
    _charges: dict[str, Charge] = field(default_factory=dict)
    _clock: CoreClock = field(default_factory=CoreClock)

    def around(self, policy: Policy) -> Policy:
        """`policy`, tallied."""
        return _MeasuredPolicy(policy, self)

    async def ask(self, policy: Policy, request: Request) -> Completion:
        charge = self._charges.setdefault(request.session_id, Charge())
        turn = self._clock.begin() if self.engine else None
        try:
            answer = await policy.complete(request)
        finally:
            if turn is not None:
                charge.core_seconds += self._clock.end(turn)
        charge.add(answer.usage)
        self._write(request.session_id, answer.usage)
        return answer

    def take(self, session: str) -> Charge:
        """The charge of a try that was scored; it is forgotten here, and so are those of lost tries before it."""
        attempt = session.rpartition(".")[0]
        charge = self._charges.get(session, Charge())
        for known in [name for name in self._charges if name.rpartition(".")[0] == attempt]:
            del self._charges[known]
        return charge

    def _write(self, session: str, usage: Usage) -> None:
        if usage.input_tokens + usage.output_tokens:
            append_line(self.path, json.dumps({"policy": self.key, "session": session, **asdict(usage)}))
        self.pay(session.rpartition(".")[0], usage)


class _MeasuredPolicy:
    def __init__(self, inner: Policy, tally: ParticipantUsage) -> None:
        self.name = inner.name
        self.takes_tokens = inner.takes_tokens
        self._inner = inner
        self._tally = tally

    async def complete(self, request: Request) -> Completion:
        return await self._tally.ask(self._inner, request)

    async def release(self, session_id: str) -> None:
        await self._inner.release(session_id)
