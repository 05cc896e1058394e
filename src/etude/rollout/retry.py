"""When to try again after an infra fault, and when to stop and say so (promise 8). Pure: no clock, no sleep."""

from __future__ import annotations

from etude.rollout.settings import AttemptSettings

# Four times the wait each time: three retries outlive a restart of the engine (about 2 s) without hiding a broken set-up.
FACTOR = 4.0


class InfraFault(Exception):
    """An attempt could not be made, for reasons that are ours. It has no reward, not even 0."""


def delay_s(failed: int, settings: AttemptSettings, hint_s: float = 0.0) -> float | None:
    """Seconds to wait after `failed` tries (>= 1) failed, or None: give up. `hint_s` is the wait that the failing side asked for."""
    if failed >= settings.attempts:
        return None
    return min(settings.max_delay_s, max(hint_s, settings.first_delay_s * FACTOR ** (failed - 1)))
