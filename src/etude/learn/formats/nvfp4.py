"""NVFP4: what numbers become in blocks of 16 FP4 elements with an FP8 scale each, and an FP32 scale above these. By fp32 arithmetic, on any device.

Format (NVIDIA, arXiv 2509.25149, appendix B): elements are E2M1, scales of blocks E4M3, and a second scale keeps those in range:

    g = amax / (6 * 448)                          of a tensor, or of each row
    s = amax of the block / (6 * g), to E4M3
    q = x / (s * g), to E2M1;   the number is q * s * g

With one g for a tensor ("tensor") a row's numbers depend on the other rows: a token's output changes with its batch, and with tokens behind it. With
one for each row ("row"), as Composer 2 has it for tokens (Cursor, "Composer 2", section 6.1), they do not. All divisions are IEEE's: approximate
ones made that training diverge.

What is not finite: a NaN makes all that shares its g NaN; an infinity takes the largest scale, and what shares its g becomes NaN or infinite.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from etude.learn.formats.small_floats import E2M1, E4M3

BLOCK = 16
SecondScale = Literal["row", "tensor"]


def quantise(x: Tensor, second: SecondScale = "row") -> tuple[Tensor, Tensor, Tensor]:
    """Of x (..., R, K): elements (..., R, K) as fp32 numbers that E2M1 holds, scales of blocks (..., R, ceil(K / 16)) as those that E4M3 holds,
    and second scales (..., R, 1), or (..., 1, 1) of each matrix. Blocks lie along the last dimension; the last may have fewer than 16."""
    wide = x.float()
    dims = (-1,) if second == "row" else (-2, -1)
    above = wide.abs().amax(dims, keepdim=True) / (E2M1.largest * E4M3.largest)
    above = torch.where(above == 0, 1.0, above)
    blocks = F.pad(wide, (0, -wide.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))  # (..., R, B, 16)
    scales = E4M3.round(blocks.abs().amax(-1) / (E2M1.largest * above))  # (..., R, B)
    divisors = (scales * above).unsqueeze(-1)
    elements = E2M1.round(torch.where(divisors == 0, 0.0, blocks / divisors))
    return elements.flatten(-2)[..., : x.shape[-1]], scales, above


def dequantise(elements: Tensor, scales: Tensor, above: Tensor) -> Tensor:
    """The numbers (..., R, K) that they represent, fp32."""
    each = (scales * above).repeat_interleave(BLOCK, -1)[..., : elements.shape[-1]]
    return elements * each


def round_to_nvfp4(x: Tensor, second: SecondScale = "row") -> Tensor:
    """x (..., R, K) as a consumer of NVFP4 sees it, in x's own type: blocks along the last dimension, which a product contracts."""
    return dequantise(*quantise(x, second)).to(x.dtype) if x.numel() else x
