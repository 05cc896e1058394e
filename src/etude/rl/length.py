"""The nonlinear length penalty of the Composer 2 technical report.

    C_{k,q}(x) = ((1 + k x)^(1 - q) - 1) / (k (1 - q))        C(0) = 0, C'(0) = 1, C'(x) = (1 + k x)^(-q)

x is a weighted sum of six quantities of the rollout. Concave: on an easy task each extra turn is felt, in a long session it
is not. q = 0 is linear, q -> 1 is ln(1 + k x) / k, q > 1 is bounded by 1 / (k (q - 1)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from etude.rl.settings import EffortWeights, LengthPenalty

QUANTITIES = tuple(EffortWeights.model_fields)  # the counters' names are the weights' names


def effort(counters: Mapping[str, float], weights: EffortWeights) -> float:
    """x: the weighted sum of the six quantities; a missing counter is an error, since 0 would reward its absence."""
    missing = [name for name in QUANTITIES if name not in counters]
    if missing:
        raise ValueError(f"the rollout has no counter {', '.join(missing)}; it has {', '.join(sorted(counters))}")
    return sum(getattr(weights, name) * counters[name] for name in QUANTITIES)


def penalty(x: float, settings: LengthPenalty) -> float:
    """C(x) >= 0 for x >= 0. With u = (1 - q) ln(1 + k x): C = ln(1 + k x) / k * (e^u - 1) / u, exact as u -> 0."""
    if x < 0:
        raise ValueError(f"effort {x} is negative")
    log = math.log1p(settings.k * x)
    u = (1.0 - settings.q) * log
    return log / settings.k * (math.expm1(u) / u if u != 0.0 else 1.0)
