"""Policies that need no model: answers from a script, or an echo. Used by experts, tests and dry runs."""

from __future__ import annotations

from collections import Counter
from typing import Callable, Sequence

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.core.trace.message import Message

Answer = Message | Completion


class ScriptedPolicy:
    """Answers with the script's messages in order, from the start for each session; or with the result of a function of the request.

    `takes_tokens=True` is for functions that return whole completions with tokens.
    """

    def __init__(
        self,
        script: Sequence[Answer] | Callable[[Request], Answer],
        *,
        name: str = "scripted",
        takes_tokens: bool = False,
    ) -> None:
        self.name = name
        self.takes_tokens = takes_tokens
        self._script = script
        self._turns: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        answer = self._script(request) if callable(self._script) else self._next(self._script, request.session_id)
        return answer if isinstance(answer, Completion) else Completion(message=answer)

    async def release(self, session_id: str) -> None:
        self._turns.pop(session_id, None)

    def _next(self, script: Sequence[Answer], session_id: str) -> Answer:
        turn = self._turns[session_id]
        if turn >= len(script):
            raise PolicyError(
                f"the script of {self.name} has {len(script)} answers and turn {turn + 1} was asked; end it with a "
                "`done` call or a message without calls",
                infra=False,
            )
        self._turns[session_id] += 1
        return script[turn]


class EchoPolicy:
    """Says the last message back, without calls: the shortest session there is."""

    name = "echo"
    takes_tokens = False

    async def complete(self, request: Request) -> Completion:
        return Completion(message=Message("assistant", request.messages[-1].text if request.messages else ""))

    async def release(self, session_id: str) -> None:
        """Keeps nothing."""
