"""How long one sandbox may live: a pure value over a monotonic clock, so that no leap of the wall clock ends anything.

`ttl_s` counts from birth, whatever it does. `idle_ttl_s` counts from its last use; it is in use while a call runs, and a heartbeat is a
use. So an agent that thinks for twenty minutes keeps its sandbox with a heartbeat, and one that is forgotten does not keep it for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from etude.sandbox.errors import UserError


class Lifetime:
    """Raises UserError for a time that is none."""

    def __init__(self, ttl_s: float | None, idle_ttl_s: float | None, clock: Callable[[], float]) -> None:
        self._ttl_s, self._idle_s = _time("ttl_s", ttl_s), _time("idle_ttl_s", idle_ttl_s)
        self._clock = clock
        self._used = clock()
        self._end = math.inf if ttl_s is None else self._used + ttl_s
        self._calls = 0
        self.changed: Callable[[], None] = lambda: None  # called when it may be due sooner than it was

    def use(self) -> None:
        self._used = self._clock()

    def begin(self) -> Callable[[], None]:
        """A use that lasts until what is returned is called, once."""
        self._calls += 1
        return self._finish

    def _finish(self) -> None:
        self._calls -= 1
        self._used = self._clock()

    def extend(self, ttl_s: float) -> None:
        """It ends this long from now, be that later or sooner than before."""
        self._ttl_s = _time("ttl_s", ttl_s)
        self._end = self._clock() + ttl_s
        self.changed()

    @property
    def left_s(self) -> float | None:
        """Until its ttl ends it; None: no end."""
        return None if self._end == math.inf else max(0.0, self._end - self._clock())

    @property
    def due(self) -> float:
        """The earliest moment at which it could be over: look again then."""
        if self._idle_s is None:
            return self._end
        return min(self._end, (self._clock() if self._calls else self._used) + self._idle_s)

    @property
    def over(self) -> str:
        """Why it has to end now; empty while it may live."""
        now = self._clock()
        if now >= self._end:
            return f"was ended: its ttl_s of {self._ttl_s:g} is over"
        if self._idle_s is not None and not self._calls and now >= self._used + self._idle_s:
            return f"was ended: unused for its idle_ttl_s of {self._idle_s:g}; a heartbeat is a use"
        return ""


def _time(name: str, value: float | None) -> float | None:
    if value is not None and not 0 < value < math.inf:
        raise UserError(f"{name}={value!r} must be a number of seconds above 0, or None for no end")
    return value
