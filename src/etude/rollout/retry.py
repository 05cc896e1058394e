"""When to try again after an infra fault, and when to stop and say so (promise 8). Pure: no clock, no sleep."""

from __future__ import annotations

from dataclasses import dataclass


class InfraFault(Exception):
    """An attempt could not be made, for reasons that are ours. It has no reward, not even 0."""


@dataclass(frozen=True)
class RetryPolicy:
    """Exponential backoff with a cap. `delay_s` of the last attempt is None: give up."""

    attempts: int = 4  # 1 + 3 retries outlive a sandbox or engine restart (about 2 s) without hiding a broken set-up
    first_delay_s: float = 0.1
    factor: float = 4.0
    max_delay_s: float = 5.0

    def delay_s(self, failed: int, hint_s: float = 0.0) -> float | None:
        """Seconds to wait after the `failed`-th attempt (1-based) failed; `hint_s` is what the failing side asked for."""
        if failed >= self.attempts:
            return None
        return min(self.max_delay_s, max(hint_s, self.first_delay_s * self.factor ** (failed - 1)))
