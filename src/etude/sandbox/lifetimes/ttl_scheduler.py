"""Ends sandboxes whose TTL is over, with one timer for all of them. The heap is lazy: a use costs nothing, and a lifetime that turns
out to last longer when it comes due is pushed back.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import time
from collections.abc import Callable

from etude.sandbox.lifetime import Lifetime

End = Callable[[str], object]  # its argument is the reason


class TtlScheduler:
    """The pure part: call `end_expired` at `next`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._ends: dict[int, tuple[Lifetime, End]] = {}
        self._heap: list[tuple[float, int]] = []
        self._numbers = itertools.count()

    def watch(self, lifetime: Lifetime, end: End) -> Callable[[], None]:
        """Call `end` when it is over. Returns what to call when that no longer matters."""
        number = next(self._numbers)
        self._ends[number] = (lifetime, end)
        lifetime.changed = lambda: self._push(lifetime.due, number)
        lifetime.changed()
        return lambda: self._forget(number)

    @property
    def next(self) -> float:
        """When to `strike`; infinite while nothing ever ends."""
        while self._heap and self._heap[0][1] not in self._ends:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def end_expired(self) -> None:
        """End those whose time is over."""
        while self.next <= self.clock():
            _, number = heapq.heappop(self._heap)
            lifetime, end = self._ends[number]
            if why := lifetime.over:
                del self._ends[number]
                end(why)
            else:
                self._push(lifetime.due, number)

    def close(self) -> None:
        self._ends.clear()
        self._heap.clear()
        self._arm()

    def _push(self, due: float, number: int) -> None:
        if due < math.inf:
            heapq.heappush(self._heap, (due, number))
        self._arm()

    def _forget(self, number: int) -> None:
        self._ends.pop(number, None)
        self._arm()

    def _arm(self) -> None:
        """`next` may have changed."""


class LoopTtlScheduler(TtlScheduler):
    """Strikes by itself, on the event loop of its pool."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self.next) < math.inf and not self._loop.is_closed():
            self._timer = self._loop.call_later(max(0.0, due - self.clock()), self._on_timer)

    def _on_timer(self) -> None:
        self.end_expired()
        self._arm()
