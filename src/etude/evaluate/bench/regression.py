"""A line through points of several seeds: one slope, an intercept a seed, and Student's interval for the slope.

Seeds differ in more than what was varied (another teacher's sessions, other tasks); an intercept each takes that out, so the slope tells
what happens within a seed. With S seeds and N points the residuals have N - S - 1 degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from etude.core.statistics.student import student_quantile


class TooFewPoints(Exception):
    """A slope with an interval can't be had from these points."""


@dataclass(frozen=True)
class RegressionLine:
    """`slope` in y per x with its 95% interval; `intercept` is the seeds' mean."""

    slope: float
    low: float
    high: float
    intercept: float

    @property
    def verdict(self) -> str:
        """What the interval allows to say."""
        if self.low <= 0 <= self.high:
            return "no relation found"
        return "y falls as x rises" if self.slope < 0 else "y rises with x"


def fit(x: Sequence[float], y: Sequence[float], seeds: Sequence[int]) -> RegressionLine:
    """Least squares. Raises TooFewPoints with no degree of freedom left, or where no seed has two values of x."""
    names = sorted(set(seeds))
    columns = np.array([[float(seed == name) for name in names] for seed in seeds])  # (N, S)
    design = np.column_stack([np.asarray(x, float), columns])
    freedom = len(x) - len(names) - 1
    if freedom < 1 or np.linalg.matrix_rank(design) < design.shape[1]:
        raise TooFewPoints(
            f"{len(x)} points of {len(names)} seeds: at least {len(names) + 2} are needed, at different x within a seed"
        )
    found, *_ = np.linalg.lstsq(design, np.asarray(y, float), rcond=None)
    residuals = np.asarray(y, float) - design @ found
    variance = float(residuals @ residuals) / freedom
    error = float(np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0]))
    reach = error * student_quantile(freedom)
    return RegressionLine(float(found[0]), float(found[0]) - reach, float(found[0]) + reach, float(found[1:].mean()))
