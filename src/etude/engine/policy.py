"""The engine in this process as a policy: what the bench and the evaluation of SFT ask."""

from __future__ import annotations

import asyncio

from etude.engine.core import EngineCore
from etude.engine.settings import EngineSettings
from etude.engine.thread import EngineThread, Result
from etude.model.causal_lm import CausalLM
from etude.policy.protocol import PolicyError, Request
from etude.trace.completion import Completion


class EnginePolicy:
    """Answers turns from an engine thread; several may run concurrently, on any event loop."""

    takes_tokens = True

    def __init__(self, thread: EngineThread, name: str = "engine") -> None:
        self.name = name
        self._thread = thread

    @classmethod
    def start(
        cls, model: CausalLM, settings: EngineSettings, *, version: int = 0, name: str = "engine"
    ) -> EnginePolicy:
        """A policy with an engine of its own, which `close` stops. The engine owns `model` from now on."""
        return cls(EngineThread(EngineCore(model, settings, version=version)).start(), name)

    @property
    def thread(self) -> EngineThread:
        return self._thread

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError. A cancelled call ends its request in the engine too."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Completion] = loop.create_future()

        def settle(result: Result) -> None:
            if answer.done():
                return
            if isinstance(result, PolicyError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        ticket = self._thread.submit(request, lambda result: _post(loop, settle, result))
        try:
            return await answer
        except asyncio.CancelledError:
            ticket.add_done_callback(lambda done: None if done.exception() else self._thread.abort(done.result()))
            raise

    async def release(self, session_id: str) -> None:
        self._thread.release([session_id])

    def close(self) -> None:
        """Stops the engine; open requests fail as infra faults."""
        self._thread.close()


def _post(loop: asyncio.AbstractEventLoop, settle: object, result: Result) -> None:
    if not loop.is_closed():  # the asker is gone, and with it the need for an answer
        loop.call_soon_threadsafe(settle, result)  # type: ignore[arg-type]
