"""How fast one sandbox may ask: a bucket of tokens. Pure."""

from __future__ import annotations


class Pace:
    """`per_s` in the long run, twice as many at once."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._tokens, self._last_s = 2 * per_s, 0.0

    def wait_s(self, now_s: float) -> float:
        """Take a token; returns how long to wait before using it."""
        self._tokens = min(2 * self._per_s, self._tokens + (now_s - self._last_s) * self._per_s)
        self._last_s = now_s
        self._tokens -= 1
        return max(0.0, -self._tokens / self._per_s)
