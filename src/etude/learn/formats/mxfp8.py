"""MXFP8: what numbers become in blocks of 32 FP8 elements that share a power of two as their scale. By fp32 arithmetic, on any device.

Format (OCP Microscaling Formats v1.0, sections 5.2, 5.3.1 and 5.4.1): elements are E4M3, that is +-2^(E-7) * (1 + M/8) for E in 1..15 and
+-2^-6 * M/8 for E = 0, at most 448 = 1.75 * 2^8; scales are E8M0, 2^e for e in -127..127, or NaN.

Conversion of a block with the largest magnitude `amax`, as Composer's kernels do it (the MXFP8 recipe, arXiv 2506.08027):

    e = the least exponent with amax <= 448 * 2^e, clamped to -127..127          (rule "ceil"; amax = 0 gives -127)
    q = x / 2^e, to the nearest E4M3, ties to the even one, never beyond +-448

The specification's own suggestion (section 6.3, rule "floor") is e = floor(log2(amax)) - 8: of a block whose amax is in 448..512 times 2^e the
largest are cut to 448 * 2^e, which the recipe's rule is there to avoid.

What is not finite: a block with a NaN is NaN altogether (its scale is). Infinities take the largest scale and saturate, and 448 * 2^127 is
infinite in fp32 again, as is a value so near fp32's end that it is rounded up beyond it; next to an infinity, numbers below 2^117 are lost.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from etude.learn.formats.small_floats import E4M3, times_two_to

BLOCK = 32
SCALE_LIMIT = 127

Scaling = Literal["ceil", "floor"]


def quantise(x: Tensor, scaling: Scaling = "ceil") -> tuple[Tensor, Tensor]:
    """Elements (..., K) as fp32 numbers that E4M3 holds, and the exponents of the scales (..., ceil(K / 32)) int32, blocks along the last
    dimension; a last block of fewer than 32 is a block too. NaN elements mean a NaN scale."""
    blocks = _blocks(x.float())  # (..., B, 32)
    amax = blocks.abs().amax(-1)  # (..., B); NaN where one is
    exponents = _scale_exponents(amax, scaling)
    scaled = times_two_to(blocks, -exponents.unsqueeze(-1))
    elements = E4M3.round(scaled)
    elements = torch.where(amax.isnan().unsqueeze(-1), torch.nan, elements)
    return elements.flatten(-2)[..., : x.shape[-1]], exponents


def dequantise(elements: Tensor, exponents: Tensor) -> Tensor:
    """The numbers (..., K) that they represent, fp32: exact, unless beyond what fp32 holds."""
    return times_two_to(_blocks(elements), exponents.unsqueeze(-1)).flatten(-2)[..., : elements.shape[-1]]


def round_to_mxfp8(x: Tensor, scaling: Scaling = "ceil") -> Tensor:
    """x (..., K) as a consumer of MXFP8 sees it, in x's own type: blocks along the last dimension, which a product contracts."""
    return dequantise(*quantise(x, scaling)).to(x.dtype)


def _scale_exponents(amax: Tensor, scaling: Scaling) -> Tensor:
    """(..., B) int32. `frexp` is exact, which a logarithm is not at powers of two."""
    mantissa, exponent = torch.frexp(amax)  # amax = mantissa * 2^exponent, mantissa in [0.5, 1)
    if scaling == "ceil":
        found = exponent - 9 + (mantissa > 0.875)  # 448 is 0.875 * 2^9
    else:
        found = exponent - 1 - 8
    found = torch.where(amax == 0, -SCALE_LIMIT, found)
    found = torch.where(amax.isinf(), SCALE_LIMIT, found)
    return torch.where(amax.isnan(), 0, found).clamp(-SCALE_LIMIT, SCALE_LIMIT).int()


def _blocks(x: Tensor) -> Tensor:
    """(..., K) as (..., ceil(K / 32), 32); zeros fill the last one, and are never a block's largest magnitude."""
    return F.pad(x, (0, -x.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
