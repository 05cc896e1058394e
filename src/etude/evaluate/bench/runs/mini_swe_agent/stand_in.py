"""The policy as another agent's endpoint offers it: asked exactly as our harness would ask, whatever the agent's own client sends.

Temperature, effort, seeds and limits are the participant's, and all turns are of the attempt's one session, so that tokens and money are
counted as everywhere. What must end the attempt (a lost endpoint, a spent budget) is kept, because the agent only hears a refusal.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from etude.agent.harness.budget import Budget
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import Policy, PolicyError, Request
from etude.core.trace.completion import Completion


class StandIn:
    """For one session. `failure` is set to what must end it."""

    def __init__(self, inner: Policy, settings: HarnessSettings, session_id: str, seed: int | None) -> None:
        self.name, self.takes_tokens = inner.name, inner.takes_tokens
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.full = False  # it asked for more than the session's tokens
        self.seconds = 0.0
        self._inner, self._settings, self._session, self._seed = inner, settings, session_id, seed
        self._budget = Budget.of(settings)
        self._turns = self._held = 0

    async def complete(self, request: Request) -> Completion:
        left = self._budget.session_tokens - max(self._held, len(request.prompt_ids)) - 1
        if left < 1:
            self.full = True
            raise PolicyError("the session's tokens are used up (max_session_tokens)", infra=False)
        asked = replace(
            request,
            session_id=self._session,
            max_tokens=min(self._budget.turn_tokens, left),
            temperature=self._settings.temperature,
            effort=self._settings.effort,
            seed=None if self._seed is None else self._seed + self._turns,
        )
        self._turns += 1
        start = asyncio.get_running_loop().time()
        try:
            answer = await self._inner.complete(asked)
        except Exception as error:
            if isinstance(error, PolicyError) and not error.infra:
                raise
            if not self.failure.done():
                self.failure.set_exception(error)
            raise PolicyError(str(error)) from error
        finally:
            self.seconds += asyncio.get_running_loop().time() - start
        self._held = answer.usage.input_tokens + answer.usage.output_tokens
        return answer

    async def release(self, session_id: str) -> None:
        await self._inner.release(self._session)
