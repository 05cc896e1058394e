"""Whether a host may get new sandboxes, by its faults. Pure: every method is told the time.

closed    takes sandboxes            --- FAULTS faults within WINDOW_S --->  open
open      is drained: nothing new    --- its rest is over --------------->  half-open
half-open is tried once              --- success --> closed;  fault --> open, resting twice as long
"""

from __future__ import annotations

from collections import deque
from typing import Literal

FAULTS = 3
WINDOW_S = 60.0
REST_S = 30.0
LONGEST_REST_S = 480.0  # a machine mended by hand is back within eight minutes

BreakerState = Literal["closed", "open", "half-open"]


class Breaker:
    def __init__(self) -> None:
        self._faults: deque[float] = deque(maxlen=FAULTS)
        self._open_until_s: float | None = None
        self._rest_s = REST_S

    def state(self, now_s: float) -> BreakerState:
        if self._open_until_s is None:
            return "closed"
        return "open" if now_s < self._open_until_s else "half-open"

    def fault(self, now_s: float) -> bool:
        """Counts one; true where this one opens it."""
        was = self.state(now_s)
        if was == "half-open":
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        self._faults.append(now_s)
        enough = len(self._faults) == FAULTS and now_s - self._faults[0] <= WINDOW_S
        if was == "open" or (was == "closed" and not enough):
            return False
        self._open_until_s = now_s + self._rest_s
        return True

    def trip(self, now_s: float) -> None:
        """Open at once: the host is lost."""
        self._open_until_s = now_s + self._rest_s

    def success(self, now_s: float) -> None:
        """A try that worked. Only a half-open one learns from it: a closed one keeps counting within its window."""
        if self.state(now_s) == "half-open":
            self._open_until_s, self._rest_s = None, REST_S
            self._faults.clear()
