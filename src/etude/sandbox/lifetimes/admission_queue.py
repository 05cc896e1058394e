"""`Admission` on an event loop: callers wait in a queue for their turn, up to `patience_s`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from etude.sandbox.errors import SandboxError
from etude.sandbox.lifetimes.admission import Admission


class AdmissionQueue:
    """`enter` before anything is made, `leave` once for each entry, when it is gone."""

    def __init__(self, admission: Admission, patience_s: float) -> None:
        self.admission, self._patience_s = admission, patience_s
        self._turns: dict[int, asyncio.Future[None]] = {}
        self._closed: SandboxError | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self) -> None:
        """Raises CapacityExhausted, also when its patience is over; then, as when it is cancelled, it has no place and left no trace."""
        if self._closed is not None:
            raise type(self._closed)(*self._closed.args)
        ticket = self.admission.arrive()
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        self._admit()
        try:
            async with asyncio.timeout(self._patience_s):
                await turn
        except TimeoutError:
            if self._gave_up(ticket):
                raise self.admission.exhausted(f"none became free within {self._patience_s:g} s") from None
        except asyncio.CancelledError:
            if not self._gave_up(ticket):
                self.leave()
            raise
        finally:
            self._turns.pop(ticket, None)

    def close(self, why: SandboxError) -> None:
        """Waiting and later callers get the error `why`."""
        self._closed = why
        for ticket, turn in self._turns.items():
            if self.admission.withdraw(ticket) and not turn.done():
                turn.set_exception(type(why)(*why.args))

    def leave(self) -> None:
        self.admission.leave()
        self._admit()

    def _gave_up(self, ticket: int) -> bool:
        """False where its turn had come at that very moment."""
        withdrawn = self.admission.withdraw(ticket)
        self._admit()
        return withdrawn

    def _admit(self) -> None:
        for ticket in self.admission.admit():
            turn = self._turns.get(ticket)
            if turn is not None and not turn.done():
                turn.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (wait_s := self.admission.wait_s) is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._admit)


def open_queue(
    max_live: int,
    creates_per_s: float | None,
    max_waiting: int,
    patience_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> AdmissionQueue:
    return AdmissionQueue(Admission(max_live, creates_per_s, max_waiting, clock), patience_s)
