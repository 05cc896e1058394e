"""What an attempt costs, on each axis: mean with its interval by task, and the median, for a policy and for the front.

Tokens are those the endpoint reports as output (hidden thinking included); where a policy reports none they are counted by the
harness, the same for all, and `source` says so. Seconds and core-seconds are of policies that compute something: a scripted agent's
and a record's time is this machine's mood, and a report of them alone is the same bytes wherever it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from etude.evaluate.bench.outcome import Outcome
from etude.evaluate.bench.runs.cost import dollars_of
from etude.evaluate.bench.runs.table import PolicyResult
from etude.evaluate.bench.scores import task_means
from etude.core.statistics.amounts import amount

AXES = ("tokens", "dollars", "seconds", "core_seconds")
COMPUTING = ("checkpoint", "endpoint")  # whose time is theirs
DIGITS = {"tokens": 1, "dollars": 6, "seconds": 3, "core_seconds": 4}

Weights = Mapping[str, float]


def measures(row: PolicyResult) -> dict[str, Callable[[Outcome], float]]:
    """The axes on which this policy has a figure for every attempt."""
    outcomes, price = row.outcomes, row.price
    found: dict[str, Callable[[Outcome], float]] = {"tokens": _tokens(row)}
    if price is not None and all(dollars_of(price, o) is not None for o in outcomes):
        found["dollars"] = lambda o: dollars_of(price, o) or 0.0
    if row.facts["kind"] in COMPUTING:
        found["seconds"] = lambda o: o.seconds
        if all(o.core_seconds is not None for o in outcomes):
            found["core_seconds"] = lambda o: o.core_seconds or 0.0
    return found


def axes(row: PolicyResult, weights: Weights, *, resamples: int, seed: int) -> dict[str, Any]:
    """The entry's `axes`: value, ci95, median, by axis."""
    rows = {}
    for name, measure in measures(row).items():
        found = amount(task_means(row.outcomes, measure), weights, resamples=resamples, seed=seed)
        digits = DIGITS[name]
        rows[name] = {
            "value": round(found.value, digits),
            "ci95": [round(found.low, digits), round(found.high, digits)],
            "median": round(float(np.median([measure(o) for o in row.outcomes])), digits),
        }
    rows["tokens"]["source"] = "endpoint" if is_reported(row) else "harness"
    return rows


def usage(row: PolicyResult) -> dict[str, Any]:
    """Sums over the attempts that are averaged; None where the endpoint left some out."""
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    found: dict[str, Any] = {"unreported": sum(o.output_tokens is None for o in row.outcomes)}
    for name in names:
        values = [getattr(o, name) for o in row.outcomes]
        found[name] = None if None in values else sum(values)
    return found


def is_reported(row: PolicyResult) -> bool:
    """Whether the policy itself said what it produced, in every attempt."""
    return all(o.output_tokens is not None for o in row.outcomes)


def _tokens(row: PolicyResult) -> Callable[[Outcome], float]:
    return (lambda o: float(o.output_tokens or 0)) if is_reported(row) else (lambda o: float(o.tokens))
