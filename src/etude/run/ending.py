"""Work that SIGTERM ends in good order: it is cancelled where it waits, closes what it opened, and only then does the signal have its effect.

An exception raised by a handler lands in whatever line runs just then, also inside a task that nobody awaits any more.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`. Where the signal came, the handler from before gets it when the work is closed."""
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # no signals reach other threads
    came = False

    async def watched() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()

        def end() -> None:
            nonlocal came
            came = True
            assert task is not None
            task.cancel()

        loop.add_signal_handler(signal.SIGTERM, end)
        try:
            return await work
        finally:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)

    before = signal.getsignal(signal.SIGTERM)
    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if came:
            signal.raise_signal(signal.SIGTERM)
        raise
