"""Floating-point numbers of 8 and 4 bits, by fp32 arithmetic: what a number becomes when it is converted.

Formats (OCP Microscaling Formats v1.0, sections 5.3.1 and 5.3.3): of E4M3 the elements are +-2^(E-7) * (1 + M/8) for E in 1..15 and +-2^-6 * M/8 for
E = 0, at most 448; of E2M1 +-2^(E-1) * (1 + M/2) for E in 1..3 and +-M/2 for E = 0, that is 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SmallFloat:
    """`mantissa_bits` behind the leading one; `least_exponent` of a normal number, below which neighbours stay as far apart; the `largest`."""

    mantissa_bits: int
    least_exponent: int
    largest: float

    def round(self, y: Tensor) -> Tensor:
        """To the nearest, ties to even, saturating; fp32 in and out. NaN stays NaN."""
        _, exponent = torch.frexp(y)  # |y| = m * 2^exponent, m in [0.5, 1)
        step = (exponent - 1).clamp(min=self.least_exponent) - self.mantissa_bits  # neighbours of y are 2^step apart
        rounded = times_two_to(times_two_to(y, -step).round(), step)  # torch rounds halves to even
        return torch.where(y.isinf(), y, rounded).clamp(-self.largest, self.largest)


E4M3 = SmallFloat(3, -6, 448.0)
E2M1 = SmallFloat(1, 0, 6.0)


def times_two_to(x: Tensor, exponents: Tensor) -> Tensor:
    """x * 2^exponents in two factors, so that neither leaves fp32 on its own."""
    half = exponents.div(2, rounding_mode="floor")
    return x * torch.exp2(half.float()) * torch.exp2((exponents - half).float())
