"""Which failures are tried again, and when. Pure but for the dice, which come from a seed.

Only faults of ours that say so (`InfraError.retryable`): what the inside or the caller did would only happen again, and would be hidden.
"""

from __future__ import annotations

import random

from etude.sandbox.errors import CapacityExhausted, InfraError

FIRST_S, LONGEST_S = 0.1, 10.0


class Retry:
    def __init__(self, attempts: int, patience_s: float, dice: random.Random) -> None:
        self._attempts, self._patience_s, self._dice = attempts, patience_s, dice

    def after(self, error: Exception, attempt: int, spent_s: float) -> float | None:
        """Seconds until the next attempt after the `attempt`-th, from 1, failed; None: give up.

        A full fleet is waited for with patience, however often it says so; faults are tried a number of times. Full jitter, so that
        what failed together does not come back together.
        """
        if not isinstance(error, InfraError) or not error.retryable or spent_s >= self._patience_s:
            return None
        if isinstance(error, CapacityExhausted):
            return error.retry_after_s * (0.5 + self._dice.random())
        if attempt >= self._attempts:
            return None
        return self._dice.random() * min(LONGEST_S, FIRST_S * 2**attempt)
