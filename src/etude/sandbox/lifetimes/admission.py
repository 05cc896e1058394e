"""Admission control: up to `max_live` sandboxes at once, up to `creates_per_s` new ones a second, first come first served, bounded waiting.

Pure: it reads a clock, and neither sleeps nor creates anything. Live sandboxes and running commands have separate limits, because a
sandbox whose agent thinks costs memory and no core. The pool limits commands with a semaphore.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from etude.sandbox.errors import CapacityExhausted

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
        """Until the rate lets the next one in; None where none waits, or for a departure."""
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
