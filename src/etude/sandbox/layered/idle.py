"""Things by key that go when nobody has used them for a while: what a peer that may never come back has left half done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Closing(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=Closing)


@dataclass
class _Slot(Generic[T]):
    thing: T | None = None
    users: int = 0
    done: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    timer: asyncio.TimerHandle | None = None


class Idle(Generic[T]):
    """Each is used by one at a time, and closed once: `patience_s` after its last use, when it is done, or with all the others."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._slots: dict[str, _Slot[T]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._slots

    @asynccontextmanager
    async def use(self, key: str, make: Callable[[], Awaitable[T]]) -> AsyncIterator[T]:
        """The thing of this key, made where there is none."""
        slot = self._slots.setdefault(key, _Slot())
        slot.users += 1
        if slot.timer is not None:
            slot.timer.cancel()
        try:
            async with slot.turn:
                if slot.thing is None:
                    slot.thing = await make()
                yield slot.thing
        finally:
            slot.users -= 1
            if not slot.users and self._slots.get(key) is slot:
                if slot.done or slot.thing is None:
                    self._drop(key)
                else:
                    slot.timer = asyncio.get_running_loop().call_later(self._patience_s, self._drop, key)

    def done(self, key: str) -> None:
        """It goes when those that use it now have finished."""
        self._slots[key].done = True

    async def close(self) -> None:
        """Each when it is no longer in use."""
        for key, slot in list(self._slots.items()):
            async with slot.turn:
                if self._slots.get(key) is slot:
                    self._drop(key)

    def _drop(self, key: str) -> None:
        slot = self._slots.pop(key)
        if slot.timer is not None:
            slot.timer.cancel()
        thing, slot.thing = slot.thing, None
        if thing is not None:
            thing.close()
