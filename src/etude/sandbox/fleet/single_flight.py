"""Idempotency: the work of one key is done once, however often and however concurrently it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """A failure forgets its key, so that the next request tries again. `stale`: a result that no longer counts (a dead sandbox)."""

    def __init__(self, stale: Callable[[T], bool] = lambda result: False) -> None:
        self._stale = stale
        self._work: dict[str, asyncio.Task[T]] = {}

    async def once(self, key: str, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """A caller may be cancelled; the work goes on, and the next caller gets its result."""
        task = self._work.get(key)
        if task is None or (task.done() and self._stale(task.result())):
            task = asyncio.create_task(make())
            self._work[key] = task
            task.add_done_callback(lambda done: self._settle(key, done))
        return await asyncio.shield(task)

    def forget(self, key: str) -> None:
        self._work.pop(key, None)

    def _settle(self, key: str, done: asyncio.Task[T]) -> None:
        if (done.cancelled() or done.exception() is not None) and self._work.get(key) is done:
            del self._work[key]
