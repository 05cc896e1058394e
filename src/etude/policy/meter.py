"""What a policy's sessions cost, as the endpoint itself reports it: one line a session in an append-only file.

Retried tries are sessions too, so that the sums are what the bill says. A session that a kill cut off before its end is
missing from the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from etude.policy.protocol import Policy, Request
from etude.trace.completion import Completion, Usage


@dataclass(frozen=True)
class Spent:
    """The sum over turns. `cached_tokens` are part of `input_tokens`; `unreported` turns came without usage."""

    turns: int = 0
    unreported: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def plus(self, usage: Usage) -> Spent:
        """With one more turn."""
        return Spent(
            self.turns + 1,
            self.unreported + (usage.input_tokens + usage.output_tokens == 0),
            self.input_tokens + usage.input_tokens,
            self.cached_tokens + usage.cached_tokens,
            self.output_tokens + usage.output_tokens,
            round(self.seconds + usage.seconds, 4),
        )

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(a + b for a, b in zip(asdict(self).values(), asdict(other).values(), strict=True)))


class Meter:
    """A policy that answers with `inner` and writes what each session spent when it is released."""

    def __init__(self, inner: Policy, path: Path, told: Callable[[Spent], None] = lambda total: None) -> None:
        self.name = inner.name
        self.takes_tokens = inner.takes_tokens
        self._inner = inner
        self._path = path
        self._told = told
        self._open: dict[str, Spent] = {}
        self._total = Spent()

    async def complete(self, request: Request) -> Completion:
        answer = await self._inner.complete(request)
        self._open[request.session_id] = self._open.get(request.session_id, Spent()).plus(answer.usage)
        return answer

    async def release(self, session_id: str) -> None:
        if spent := self._open.pop(session_id, None):
            line = json.dumps({"session": session_id, **asdict(spent)}) + "\n"
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(file, line.encode())
            finally:
                os.close(file)
            self._total += spent
            self._told(self._total)
        await self._inner.release(session_id)


def read_spent(path: Path, belongs: Callable[[str], bool]) -> Spent:
    """The sum over the sessions whose id `belongs`. A line torn by a kill is left out."""
    total = Spent()
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if belongs(row.pop("session")):
            total += Spent(**row)
    return total
