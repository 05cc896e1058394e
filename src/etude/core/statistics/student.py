"""Student's distribution, central and shifted, to 1e-12: what intervals and power of a mean of few values rest on.

With s^2 a chi-square of f degrees over f, a variable of shift d is (Z + d) / s, so P(T <= t) is the mean of Phi(t s - d) over s
(Johnson, Kotz and Balakrishnan 1995, chapter 31). That integral is done by Gauss and Legendre.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

NODES = 240  # within 1e-12 of scipy.stats.t and nct for 1 to 100,000 degrees
REACH = 9.0  # how far the integral goes, in 1 / sqrt(f) around 1: what lies beyond is under 1e-17
HALVINGS = 200  # of an interval of reals: more than a double has bits


def student_cdf(t: float, freedom: int, shift: float = 0.0) -> float:
    """P(T <= t) for `freedom` degrees and noncentrality `shift`."""
    if freedom < 1:
        raise ValueError(f"Student's distribution needs at least 1 degree of freedom, not {freedom}")
    s, weights = _scale(freedom)
    inside = [0.5 * math.erfc((shift - t * float(x)) / math.sqrt(2)) for x in s]
    return float(np.dot(weights, inside))


@cache
def student_quantile(freedom: int, confidence: float = 0.95) -> float:
    """t such that a Student variable with this many degrees of freedom lies within [-t, t] with this probability."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence lies between 0 and 1, not at {confidence}")
    target = (1 + confidence) / 2
    return _rise(lambda t: student_cdf(t, freedom) - target)


def freedom_of(values: Mapping[str, np.ndarray], shares: Mapping[str, float]) -> int:
    """Degrees of freedom of a weighted mean over levels of tasks, at least 1.

    By Satterthwaite (1946) as if all levels had the same spread, so that a heavy level of few tasks counts as few.
    """
    parts = [(share**2 / len(values[level]), len(values[level]) - 1) for level, share in shares.items()]
    whole = sum(part for part, freedom in parts if freedom)
    each = sum(part**2 / freedom for part, freedom in parts if freedom)
    return max(1, int(whole**2 / each + 1e-9)) if each else 1


@cache
def detectable_shift(freedom: int, power: float, alpha: float) -> float:
    """The noncentrality at which a two-sided t-test at level `alpha` rejects with probability `power`."""
    if not 0 < alpha < power < 1:
        raise ValueError(f"a power lies between alpha and 1: power {power}, alpha {alpha}")
    edge = student_quantile(freedom, 1 - alpha)

    def reaches(shift: float) -> float:
        return 1 - student_cdf(edge, freedom, shift) + student_cdf(-edge, freedom, shift) - power

    return _rise(reaches)


@cache
def _scale(freedom: int) -> tuple[np.ndarray, np.ndarray]:
    """Values of s and what each weighs: density times width, adding up to 1."""
    low, high = max(0.0, 1 - REACH / math.sqrt(freedom)), 1 + REACH / math.sqrt(freedom)
    nodes, widths = np.polynomial.legendre.leggauss(NODES)
    s = low + (high - low) * (nodes + 1) / 2
    density = np.exp((freedom - 1) * np.log(s) - freedom * (s * s - 1) / 2)
    weights = density * widths
    return s, weights / weights.sum()


def _rise(function: Callable[[float], float], high: float = 1.0) -> float:
    """Where a rising function of positive numbers crosses zero."""
    while function(high) < 0:
        high *= 2
    low = 0.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if function(middle) < 0 else (low, middle)
    return high
