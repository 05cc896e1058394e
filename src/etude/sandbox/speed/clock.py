"""Times of interleaved actions. Foreign load moves all of a round alike, so ratios within a run say more than times."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping

Action = Callable[[], Awaitable[object]]
# A measure that prepares outside the clock returns the seconds that count; any other counts as a whole.
Timed = Callable[[], Awaitable[float | None]]


def quantile(values: list[float], q: float) -> float:
    """The smallest value that at least a part q of all do not exceed (nearest rank)."""
    if not values or not 0 < q <= 1:
        raise ValueError(f"a quantile of {len(values)} values at {q}: give values and 0 < q <= 1")
    return sorted(values)[math.ceil(q * len(values)) - 1]


def summary(values_ms: list[float]) -> dict[str, float]:
    return {"p50": round(quantile(values_ms, 0.5), 3), "p99": round(quantile(values_ms, 0.99), 3)}


async def interleave(measures: Mapping[str, Timed], rounds: int, warm_up: int = 2) -> dict[str, list[float]]:
    """Milliseconds of each measure, one of each a round; the first rounds, in which caches fill, are left out."""
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(warm_up + rounds):
        for name, measure in measures.items():
            start = time.perf_counter()
            own_s = await measure()
            spent_s = time.perf_counter() - start if own_s is None else own_s
            if number >= warm_up:
                found[name].append(1e3 * spent_s)
    return found
