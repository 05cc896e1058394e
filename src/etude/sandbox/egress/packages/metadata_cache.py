"""Pages that were read a moment ago, each asked for once however many want it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class MetadataCache(Generic[T]):
    """The last `most` pages, each for `life_s`. A failure is not remembered."""

    def __init__(self, most: int, life_s: float = 300.0) -> None:
        self._most, self._life_s = most, life_s
        self._pages: dict[str, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, name: str, read: Callable[[], Awaitable[T]]) -> T:
        now = asyncio.get_running_loop().time()
        end_s, task = self._pages.get(name, (0.0, None))
        failed = task is not None and task.done() and (task.cancelled() or task.exception() is not None)
        if task is None or failed or now >= end_s:
            task = asyncio.ensure_future(_run(read))
            self._pages.pop(name, None)
            self._pages[name] = (now + self._life_s, task)
            while len(self._pages) > self._most:
                del self._pages[next(iter(self._pages))]
        return await asyncio.shield(task)  # one who leaves does not take it from the others


async def _run(read: Callable[[], Awaitable[T]]) -> T:
    return await read()
