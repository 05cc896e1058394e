"""How every verb is stopped: Ctrl-C (SIGINT), SIGTERM and SIGHUP. The one place where signal handlers are made.

A handler runs between any two instructions of the main thread, also inside of `Event.wait` while the event's lock is held. So no handler
takes a lock, logs or imports: it raises an exception, writes one byte to a pipe, or wakes the event loop.

    raise_when_stopped()          for code that waits anywhere: SIGTERM and SIGHUP raise Stopped, as Ctrl-C raises KeyboardInterrupt
    run_async(work)               asyncio.run whose work is cancelled where it awaits, and cleaned up, before the signal has its effect
    with handled_in_loop(...):    for async code that answers signals itself; what was there before comes back, whatever it was
    with StopFlag() as stop:      for a loop that ends in its own time: `stop.is_set()`, `stop.wait(seconds)`
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGTERM, signal.SIGHUP)  # Ctrl-C is Python's own


class Stopped(KeyboardInterrupt):
    """A signal came: leave through every `finally`, so that sandboxes and Ray's processes are ended."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number

    @property
    def status(self) -> int:
        """128 and the signal's number, as shells report."""
        return 128 + self.number


def name_of(stop: KeyboardInterrupt) -> str:
    """What stopped the command, as a person calls it."""
    return signal.Signals(stop.number).name if isinstance(stop, Stopped) else "Ctrl-C"


def status_of(stop: KeyboardInterrupt) -> int:
    return stop.status if isinstance(stop, Stopped) else 128 + signal.SIGINT


def raise_when_stopped() -> None:
    """From now on, in the main thread. A signal that is ignored stays ignored (`nohup`)."""
    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`. Where a signal comes, the work is cancelled and closes what it opened; then Stopped is raised, or the handler from before
    has its turn."""
    import asyncio  # 40 ms, which a verb that is not asynchronous need not pay

    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(work)  # no signals reach other threads
    came: list[int] = []

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None

        def end(number: int) -> None:
            came.append(number)
            task.cancel()

        with handled_in_loop(SIGNALS, end):
            return await work

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        if came:
            signal.raise_signal(came[0])
            raise Stopped(came[0]) from None  # the handler from before did nothing
        raise


@contextmanager
def handled_in_loop(numbers: Iterable[int], callback: Callable[[int], object]) -> Iterator[None]:
    """Within, the running loop calls `callback` with the number of each of these signals that comes. A signal that is ignored stays ignored.

    Not `loop.add_signal_handler`: its removal sets the default action, which kills, instead of the handler from before."""
    import asyncio  # 40 ms, which a verb that is not asynchronous need not pay

    loop = asyncio.get_running_loop()

    def wake(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(callback, number)

    before = {number: signal.getsignal(number) for number in numbers}
    handled = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in handled:
        signal.signal(number, wake)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, before[number])


class StopFlag:
    """Context manager: set by the first of the signals, Ctrl-C among them. Has the methods of an Event that a waiting loop needs."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}
        self._reader = self._writer = -1

    def __enter__(self) -> StopFlag:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        for number in (signal.SIGINT, *SIGNALS):
            before = signal.getsignal(number)
            if before != signal.SIG_IGN:
                self._before[number] = before
                signal.signal(number, self._set)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self._reader)
        os.close(self._writer)

    def _set(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        with suppress(BlockingIOError):  # full of bytes that say the same
            os.write(self._writer, b"\0")

    def is_set(self) -> bool:
        return self.number != 0

    def wait(self, timeout: float | None = None) -> bool:
        """Whether it is set, at once or within `timeout` seconds."""
        if not self.is_set():
            poll = select.poll()  # `select` takes no descriptor above 1023
            poll.register(self._reader, select.POLLIN)
            poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        return self.is_set()
