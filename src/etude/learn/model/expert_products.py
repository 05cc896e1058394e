"""Products of experts in the low precision of training on Blackwell GPUs, by rounding operands and multiplying what they became.

"mxfp8": all products of a layer, forward and for both gradients, in MXFP8 (arXiv 2506.08027). "nvfp4": the forward product in NVFP4 with a scale
of each token, as engines sample, and gradients in MXFP8 (Cursor, Composer 2 technical report, section 6.1, which leaves the scales of weights open:
here one of each matrix of an expert). Blocks lie along the dimension that a product contracts. No kernel of such a format is used: this states what
the formats do to a training, not how fast they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from etude.learn.formats.mxfp8 import round_to_mxfp8
from etude.learn.formats.nvfp4 import round_to_nvfp4
from etude.learn.model.linear import linear
from etude.learn.model.settings import ExpertProducts

Rounding = Callable[[Tensor], Tensor]  # (..., K) to the same, blocks along K


@dataclass(frozen=True)
class ProductRoundings:
    """What the operands of the forward product are rounded to, and those of the products for both gradients."""

    tokens: Rounding
    weights: Rounding
    gradients: Rounding


ROUNDINGS: dict[ExpertProducts, ProductRoundings] = {
    "mxfp8": ProductRoundings(round_to_mxfp8, round_to_mxfp8, round_to_mxfp8),
    "nvfp4": ProductRoundings(round_to_nvfp4, partial(round_to_nvfp4, second="tensor"), round_to_mxfp8),
}


class _RoundedProduct(torch.autograd.Function):
    """x (M, K) by weight (N, K) to (M, N)."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, how: ProductRoundings) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        ctx.how = how
        return linear(how.tokens(x), how.weights(weight))

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        x, weight = ctx.saved_tensors
        narrow: Rounding = ctx.how.gradients
        dx = linear(narrow(grad), narrow(weight.t())) if ctx.needs_input_grad[0] else None
        dweight = linear(narrow(grad.t()), narrow(x.t())) if ctx.needs_input_grad[1] else None
        return dx, dweight, None


def product_of(products: ExpertProducts) -> Callable[[Tensor, Tensor], Tensor]:
    """Tokens (M, K) and a weight (N, K) to (M, N), with the gradients of that kind."""
    if products == "plain":
        return linear
    return partial(rounded_product, how=ROUNDINGS[products])


def rounded_product(x: Tensor, weight: Tensor, how: ProductRoundings) -> Tensor:
    """The same, by any roundings."""
    return _RoundedProduct.apply(x, weight, how)  # type: ignore[return-value]
