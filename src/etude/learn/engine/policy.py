"""The engine in this process as a policy: what the bench, the evaluation of SFT, `etude agent` and `etude capture` ask.

A request that wants its turn in pieces (`on_delta`) receives them as the tokens are sampled, once per step, if the policy
knows the model's chat format. One that doesn't costs nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.policy.protocol import PolicyError, Request, StreamCallback
from etude.core.trace.completion import Completion
from etude.learn.engine.batching import answered
from etude.learn.engine.core import EngineCore
from etude.learn.engine.service import EngineThread, Result
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.causal_lm import CausalLM


class EnginePolicy:
    """Answers turns from an engine thread; several may run concurrently, on any event loop."""

    takes_tokens = True

    def __init__(self, thread: EngineThread, name: str = "engine", renderer: Renderer | None = None) -> None:
        self.name = name
        self._thread = thread
        self._renderer = renderer

    @classmethod
    def start(
        cls,
        model: CausalLM,
        settings: EngineSettings,
        *,
        version: int = 0,
        name: str = "engine",
        renderer: Renderer | None = None,
    ) -> EnginePolicy:
        """A policy with an engine of its own, which `close` stops. The engine owns `model` from now on. `renderer` is the
        model's: without it no turn is streamed."""
        return cls(EngineThread(EngineCore(model, settings, version=version)).start(), name, renderer)

    @property
    def thread(self) -> EngineThread:
        return self._thread

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError. A cancelled call ends its request in the engine too."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Completion] = loop.create_future()
        stream = (
            None if self._renderer is None or request.on_delta is None else TurnStream(self._renderer, request.on_delta)
        )

        def settle(result: Result) -> None:
            if answer.done():
                return
            if isinstance(result, PolicyError):
                answer.set_exception(result)
                return
            if stream is not None and result.tokens is not None:
                stream.add_rest(result.tokens.ids)
            answer.set_result(result)

        def forward(ids: list[int]) -> None:
            if stream is not None and not answer.done():
                stream.add_tokens(ids)

        on_tokens = None if stream is None else lambda tokens: _post(loop, forward, tokens.ids)
        ticket = self._thread.submit(request, lambda result: _post(loop, settle, result), on_tokens)
        try:
            return await answered(answer, lambda: self._thread.stepped_at, request.on_alive)
        except asyncio.CancelledError:
            ticket.add_done_callback(lambda done: None if done.exception() else self._thread.abort(done.result()))
            raise

    async def release(self, session_id: str) -> None:
        self._thread.release([session_id])

    def close(self) -> None:
        """Stops the engine; open requests fail as infra faults."""
        self._thread.close()


class TurnStream:
    """One streamed turn, delivered on the caller's event loop."""

    def __init__(self, renderer: Renderer, tell: StreamCallback) -> None:
        self._turn = renderer.listen()
        self._tell = tell
        self._count = 0

    def add_tokens(self, ids: list[int]) -> None:
        """The tokens that follow those added before."""
        self._count += len(ids)
        for part, piece in self._turn.feed(ids):
            self._tell(part, piece)

    def add_rest(self, ids: list[int]) -> None:
        """All tokens of the turn: adds those that were not added yet."""
        self.add_tokens(ids[self._count :])


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], None], value: Any) -> None:
    if not loop.is_closed():  # the asker is gone, and with it the need for an answer
        loop.call_soon_threadsafe(callback, value)
