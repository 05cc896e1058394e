"""Admission control: up to `max_live` sandboxes at once, up to `creates_per_s` new ones a second, first come first served, bounded waiting.

Pure: it reads a clock, and neither sleeps nor creates anything. Live sandboxes and running commands have separate limits, because a
sandbox whose agent thinks costs memory and no core. The pool limits commands with a semaphore.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from etude.sandbox.errors import CapacityExhausted, SandboxError

_PACE_S = 1.0  # of departures, until some have been seen
_MEMORY = 0.8  # of the pace: a new interval counts a fifth
_LEAST_S, _MOST_S = 0.1, 60.0  # what is worth asking a caller to wait


class TokenBucket:
    """A token bucket: `rate_per_s` on average, with a burst of one second's tokens. None: no limit."""

    def __init__(self, rate_per_s: float | None, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate_per_s, clock
        self._most = max(1.0, rate_per_s or 0.0)
        self._tokens, self._at = self._most, clock()

    def take(self) -> bool:
        if self._rate is None:
            return True
        self._fill(self._rate)
        # A wait for the exact moment may end a rounding error before it.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens = max(0.0, self._tokens - 1)
        return True

    def wait_s(self) -> float:
        """Until one can be taken."""
        if self._rate is None:
            return 0.0
        self._fill(self._rate)
        return max(0.0, (1 - self._tokens) / self._rate)

    def _fill(self, rate: float) -> None:
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._at) * rate)
        self._at = now


class Admission:
    """A ticket is a number; smaller came earlier."""

    def __init__(
        self, max_live: int, creates_per_s: float | None, max_waiting: int, clock: Callable[[], float]
    ) -> None:
        self.max_live, self._most_waiting, self._clock = max_live, max_waiting, clock
        self.live = 0
        self._bucket = TokenBucket(creates_per_s, clock)
        self._line: OrderedDict[int, None] = OrderedDict()
        self._last_ticket = 0
        self._pace_s, self._last_departure = _PACE_S, None

    @property
    def waiting(self) -> int:
        return len(self._line)

    def arrive(self) -> int:
        """A place at the end of the line. Raises CapacityExhausted when it is full."""
        if len(self._line) >= self._most_waiting:
            raise self.capacity_error(f"{len(self._line)} creates wait already")
        self._last_ticket += 1
        self._line[self._last_ticket] = None
        return self._last_ticket

    def admit(self) -> list[int]:
        """Those whose turn it is; they count as live from now until `leave`."""
        admitted: list[int] = []
        while self._line and self.live < self.max_live and self._bucket.take():
            ticket, _ = self._line.popitem(last=False)
            admitted.append(ticket)
            self.live += 1
        return admitted

    def withdraw(self, ticket: int) -> bool:
        """Out of the line; False where it had been admitted."""
        if ticket not in self._line:
            return False
        del self._line[ticket]
        return True

    def leave(self) -> None:
        """One that was admitted is gone, or never came to be."""
        self.live -= 1
        now, before = self._clock(), self._last_departure
        self._last_departure = now
        if before is not None:
            self._pace_s = _MEMORY * self._pace_s + (1 - _MEMORY) * (now - before)

    @property
    def wait_s(self) -> float | None:
        """Until the rate lets the next one in; None where none waits, or for a departure."""
        return self._bucket.wait_s() if self._line and self.live < self.max_live else None

    def capacity_error(self, why: str) -> CapacityExhausted:
        """When to come again: as many departures at the present pace as there are before it."""
        pace_s = self._bucket.wait_s() if self.live < self.max_live else self._pace_s
        retry_s = min(_MOST_S, max(_LEAST_S, pace_s * (1 + len(self._line))))
        return CapacityExhausted(
            f"no room for another sandbox: {why}; {self.live} of at most {self.max_live} live; try again in {retry_s:.1f} s, "
            f"or raise sandbox.max_live",
            retry_s,
        )


# `Admission` on an event loop: callers wait in a queue for their turn, up to `patience_s`.


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
                raise self.admission.capacity_error(f"none became free within {self._patience_s:g} s") from None
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
