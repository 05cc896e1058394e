"""vLLM over one checkpoint directory as a policy: what the stages other than rl ask where `engine.kind` is "vllm"."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path

from etude.agent.policy.protocol import PolicyError, Request
from etude.core.trace.completion import Completion
from etude.learn.engine.mailbox import Result
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.vllm.child import EngineGone
from etude.learn.engine.vllm.turns import VllmTurns
from etude.learn.model.checkpoint import load_config
from etude.learn.model.transformers_backend.config import refuse


class VllmPolicy:
    """Answers turns, several at once, on any event loop; turns are not streamed. vLLM starts with the object and ends with `close`; turns
    wait for its start."""

    takes_tokens = True

    def __init__(self, checkpoint: Path, settings: EngineSettings, log: Path | None = None, name: str = "vllm") -> None:
        """`log`: the file for what vLLM prints, by default one in the folder for temporary files. Raises ValueError for a model that
        transformers computes, and CheckpointError for an adapter, which has to be merged first."""
        refuse(load_config(checkpoint), 'engine.kind = "vllm"')
        self.name = name
        self._lock = threading.Lock()
        self._waiting: set[_Answer] = set()
        place = log or Path(tempfile.mkstemp(prefix="etude-vllm-", suffix=".log")[1])
        self._turns = VllmTurns(checkpoint, settings, place, self._fail_waiting, version=0)

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError; an infrastructure error where vLLM's process ends. A cancelled call ends its turn in vLLM too."""
        answer = _Answer()
        with self._lock:
            self._waiting.add(answer)
        try:
            number = self._turns.ask(request, answer.settle)
            gone = self._turns.child.gone  # it may have ended before the answer was among those that wait
            if gone is not None:
                raise gone
            result = await self._answered(answer, number)
        except EngineGone as error:
            raise PolicyError(str(error)) from error
        finally:
            with self._lock:
                self._waiting.discard(answer)
        if isinstance(result, PolicyError):
            raise result
        return result

    async def _answered(self, answer: _Answer, number: int) -> Result:
        try:
            return await answer.future
        except asyncio.CancelledError:
            self._turns.abort(number)
            raise

    async def release(self, session_id: str) -> None:
        self._turns.release([session_id])

    def close(self) -> None:
        """Ends vLLM; open requests fail as infrastructure errors."""
        self._turns.child.close()

    def _fail_waiting(self) -> None:
        with self._lock:
            waiting = list(self._waiting)
        for answer in waiting:
            answer.settle(PolicyError(str(self._turns.child.gone)))


class _Answer:
    """A result from a thread, awaited on the event loop on which it is made."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Result] = self._loop.create_future()

    def settle(self, result: Result) -> None:
        """From any thread; only the first counts."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: Result) -> None:
        if not self.future.done():
            self.future.set_result(result)
