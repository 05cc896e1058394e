"""A token bucket: so many a second in the long run, and a burst of as many as one second brings."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """`rate_per_s` None: no bound."""

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
