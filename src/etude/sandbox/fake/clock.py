"""An event loop whose time is made up: when nothing is ready it jumps to the next timer. Hours pass in seconds, and a seed replays exactly."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Waits for nothing: what would have been the wait is handed to `jump`."""

    jump: Callable[[float], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout == 0:  # somebody is ready: asking the kernel each time would be a tenth of a simulation
            return []
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("every task waits, and no timer is set: in made-up time that is for ever")
            self.jump(max(timeout, 0.0))
        return ready


class MadeUpTime(asyncio.SelectorEventLoop):
    """Only for code that waits for timers and for its own tasks; a real socket or thread would see years go by."""

    def __init__(self) -> None:
        selector = _Jumping()
        selector.jump = self._advance
        super().__init__(selector)
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def _advance(self, seconds: float) -> None:
        self._now_s += seconds


def run(work: Coroutine[Any, Any, T]) -> T:
    """As asyncio.run, in made-up time that starts at 0."""
    with asyncio.Runner(loop_factory=MadeUpTime) as runner:
        return runner.run(work)
