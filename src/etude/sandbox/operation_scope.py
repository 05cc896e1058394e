"""Operations that fail as soon as the sandbox or host they wait for is lost. An operation costs no task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from etude.sandbox.errors import SandboxError

T = TypeVar("T")


class OperationScope:
    """Fails once; all running and later operations then raise a new error from `why`."""

    def __init__(self) -> None:
        self.why: Callable[[], SandboxError] | None = None
        self._held: dict[asyncio.Timeout, None] = {}  # in the order of their beginning, so that a simulation replays

    def fail(self, why: Callable[[], SandboxError]) -> None:
        """Idempotent: the first reason stays. What is held ends at the loop's next turn."""
        if self.why is not None:
            return
        self.why = why
        now = asyncio.get_running_loop().time()
        for scope in self._held:
            scope.reschedule(now)

    async def hold(self, work: Coroutine[Any, Any, T]) -> T:
        if self.why is not None:
            work.close()
            raise self.why()
        scope = asyncio.timeout(None)
        self._held[scope] = None
        try:
            async with scope:
                return await work
        except TimeoutError:
            if scope.expired() and self.why is not None:
                raise self.why() from None
            raise
        finally:
            del self._held[scope]
