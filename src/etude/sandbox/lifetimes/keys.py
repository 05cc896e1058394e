"""The same key twice is the same sandbox: a request that is repeated because its answer was lost makes no second one.

Promises: one making however many ask at once; it is abandoned only when all who ask have given up; a failure forgets the key, so that the
next request tries anew; the key is forgotten when what it names is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from etude.sandbox.errors import UserError

Thing = TypeVar("Thing")


@dataclass
class _Making(Generic[Thing]):
    demand: object
    task: asyncio.Task[Thing]
    waiting: int = 0


class Keys(Generic[Thing]):
    """Whoever makes a thing calls `forget` when it has ended."""

    def __init__(self) -> None:
        self._makings: dict[str, _Making[Thing]] = {}

    async def once(self, key: str, demand: object, make: Callable[[], Awaitable[Thing]]) -> Thing:
        """Raises UserError for a key that stands for another demand."""
        making = self._makings.get(key)
        if making is None:
            making = self._makings[key] = _Making(demand, asyncio.ensure_future(_awaited(make)))
        if making.demand != demand:
            raise UserError(
                f"key {key!r} stands for another demand; take a fresh key for each thing that you want made"
            )
        making.waiting += 1
        try:
            return await asyncio.shield(making.task)
        except asyncio.CancelledError:
            if making.waiting == 1 and not making.task.done():
                making.task.cancel()
                self.forget(key)
            raise
        except BaseException:
            if self._makings.get(key) is making:
                self.forget(key)
            raise
        finally:
            making.waiting -= 1

    def forget(self, key: str) -> None:
        self._makings.pop(key, None)


async def _awaited(make: Callable[[], Awaitable[Thing]]) -> Thing:
    return await make()
