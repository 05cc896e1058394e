"""Creates at most so many a second, with a burst of one second's worth. Pure: reserving a place says how long to wait for it."""

from __future__ import annotations


class TokenBucket:
    def __init__(self, per_s: float) -> None:
        if per_s <= 0:
            raise ValueError(f"creates a second must be above 0, got {per_s}")
        self._each_s = 1 / per_s
        self._free_at_s = float("-inf")  # when the bucket will be full again, less what is reserved

    def wait_s(self, now_s: float) -> float:
        """What `reserve` would say."""
        return max(0.0, max(self._free_at_s, now_s - 1.0) + self._each_s - now_s)

    def reserve(self, now_s: float) -> float:
        """Takes the next token, which may lie in the future: first come, first served. Seconds until it may be used."""
        wait = self.wait_s(now_s)
        self._free_at_s = max(self._free_at_s, now_s - 1.0) + self._each_s
        return wait
