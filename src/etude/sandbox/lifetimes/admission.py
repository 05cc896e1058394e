"""Who may be made next: at most `max_live` at once, at most so many a second, first come first served, and nobody waits without bound.

Pure: it knows a clock, but neither sleeps nor makes anything. Live sandboxes and running commands are bounded apart: a sandbox whose
agent thinks costs memory and no core. Commands have a semaphore of their own in the pool.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from etude.sandbox.errors import CapacityExhausted
from etude.sandbox.lifetimes.bucket import Bucket

_PACE_S = 1.0  # of departures, until some have been seen
_MEMORY = 0.8  # of the pace: a new interval counts a fifth
_LEAST_S, _MOST_S = 0.1, 60.0  # what is worth asking a caller to wait


class Admission:
    """A ticket is a number; smaller came earlier."""

    def __init__(
        self, max_live: int, creates_per_s: float | None, max_waiting: int, clock: Callable[[], float]
    ) -> None:
        self.max_live, self._most_waiting, self._clock = max_live, max_waiting, clock
        self.live = 0
        self._bucket = Bucket(creates_per_s, clock)
        self._line: OrderedDict[int, None] = OrderedDict()
        self._last_ticket = 0
        self._pace_s, self._last_departure = _PACE_S, None

    @property
    def waiting(self) -> int:
        return len(self._line)

    def arrive(self) -> int:
        """A place at the end of the line. Raises CapacityExhausted when it is full."""
        if len(self._line) >= self._most_waiting:
            raise self.exhausted(f"{len(self._line)} creates wait already")
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
        """Until the rate lets the next one in; None where nobody waits, or for a departure."""
        return self._bucket.wait_s() if self._line and self.live < self.max_live else None

    def exhausted(self, why: str) -> CapacityExhausted:
        """When to come again: as many departures at the present pace as there are before it."""
        pace_s = self._bucket.wait_s() if self.live < self.max_live else self._pace_s
        retry_s = min(_MOST_S, max(_LEAST_S, pace_s * (1 + len(self._line))))
        return CapacityExhausted(
            f"no room for another sandbox: {why}; {self.live} of at most {self.max_live} live; try again in {retry_s:.1f} s, "
            f"or raise sandbox.max_live",
            retry_s,
        )
