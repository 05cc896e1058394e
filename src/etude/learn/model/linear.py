"""Matrix products by a weight, through the faster of torch's two CPU libraries.

torch sends fp32 products to MKL, which on CPUs not made by Intel leaves AVX-512 unused; oneDNN, in the same build, does
not. At training shapes that halves the time (2,048 x 128 by 256: 1.4 ms to 0.6 ms on an AMD core), in plain fp32 either way.
Small products stay with MKL, which starts faster. On Intel's CPUs MKL is the faster one (SmolLM2's products, forward and backward, in 0.55 to 0.85
of oneDNN's time). The way to oneDNN is the operator that torch.compile emits for a linear layer.
"""

from __future__ import annotations

from typing import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from etude.learn.model.device import AVX512, INTEL, OWN_KERNELS

# Multiply-adds from which oneDNN is ahead for every shape of a small model (measured between 0.7 and 1.5 million).
ONEDNN_MULTIPLY_ADDS = 1 << 20

# oneDNN generates code for every new shape, and the number of rows is new with every batch and every expert: half the time of a
# training step went there. Rows in steps of 64 let shapes recur within its cache of 1,024; the zero rows and the copy cost
# less (8.9 to 13.4 thousand tokens a second on batches of the laptop's sessions; steps of 32 and 128 are no better).
ROW_STEP = 64


# The few rows of a decoding step are multiplied in the way that was the fastest at SmolLM2's and Qwen2.5-0.5B's shapes: by MKL as they are, by MKL as
# columns behind the weight, or by oneDNN.
FEW_ROWS, FEWER_ROWS = 64, 8
SMALL_WEIGHT, WIDE_WEIGHT, HEAD_WEIGHT = 1 << 17, 1 << 20, 1 << 23
# Of Intel's AVX-512: MKL's own way is slow from 4 rows on, oneDNN's fast up to 32, both but for small weights.
INTEL_ROWS, INTEL_SMALL_WEIGHT = range(4, 33), 1 << 19


def _onednn_operator(wanted: bool) -> Callable[..., Tensor] | None:
    """The operator, if this build has it."""
    if not wanted or not torch.backends.mkldnn.is_available():
        return None
    packet = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if packet is None else packet.default


_ONEDNN = _onednn_operator(OWN_KERNELS)
_ONEDNN_OF_AVX2 = _onednn_operator(torch.backends.cpu.get_cpu_capability() == "AVX2")
_ONEDNN_OF_INTEL = _onednn_operator(AVX512 and INTEL)


def _product(x: Tensor, weight: Tensor) -> Tensor:
    """x (M, K) by weight (N, K), of any strides, to (M, N)."""
    assert _ONEDNN is not None
    return _ONEDNN(x, weight, None, "none", [], "")


def _padded(x: Tensor, rows: int) -> Tensor:
    """Zero rows added up to a number of `rows`; x itself if there is nothing to add."""
    spare = rows - x.shape[0]
    return x if not spare else F.pad(x, (0, 0, 0, spare))


def _training_rows(rows: int) -> int:
    return rows + -rows % ROW_STEP


def _decoding_rows(rows: int) -> int:
    """Few shapes too, and none far above the rows that are there: a step of a large model has few rows, each costs (SmolLM2's shapes, one
    row: 27 ms instead of 67 ms; 32 rows: 67 ms instead of 91 ms)."""
    if rows >= ROW_STEP:
        return _training_rows(rows)
    return 1 << (rows - 1).bit_length() if rows <= 8 else rows + -rows % 8


class _OneDnnLinear(torch.autograd.Function):
    """The product and both gradients by oneDNN, on padded rows."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:
        padded = _padded(x, _training_rows(x.shape[0]))
        ctx.save_for_backward(padded, weight)
        return _product(padded, weight)[: x.shape[0]]

    @staticmethod
    def backward(ctx, grad: Tensor):  # type: ignore[override]
        x, weight = ctx.saved_tensors
        rows, grad = grad.shape[0], _padded(grad, _training_rows(grad.shape[0]))
        dx = _product(grad, weight.t())[:rows] if ctx.needs_input_grad[0] else None
        # (K, N) transposed: the tokens, the longest side, are then the rows of neither operand, which packs faster.
        dweight = _product(x.t(), grad.t()).t() if ctx.needs_input_grad[1] else None
        return dx, dweight


def _of_few_rows(x: Tensor, weight: Tensor) -> Tensor | None:
    """The product of a decoding step where MKL's own is slow; None elsewhere."""
    rows = x.shape[0]
    if rows > FEW_ROWS or weight.numel() < SMALL_WEIGHT or torch.is_grad_enabled():
        return None
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return None
    operator = _ONEDNN_OF_INTEL or _ONEDNN_OF_AVX2
    if operator is None:
        return None
    way = _intel_way(rows, *weight.shape) if _ONEDNN_OF_INTEL is not None else _avx2_way(rows, weight.numel())
    if way == "rows":
        return None
    if way == "columns":
        return (weight @ x.t()).t().contiguous()
    return operator(_padded(x, _decoding_rows(rows)), weight, None, "none", [], "")[:rows]


def _avx2_way(rows: int, size: int) -> str:
    """Without AVX-512: columns, but oneDNN for one row on several threads, and for more than eight rows and the weight of a head. Small weights
    gain nothing."""
    alone = rows == 1 and size >= WIDE_WEIGHT and torch.get_num_threads() > 1
    return "onednn" if alone or (rows > FEWER_ROWS and size >= HEAD_WEIGHT) else "columns"


def _intel_way(rows: int, outputs: int, inputs: int) -> str:
    """With Intel's AVX-512 (a Xeon of 2023, one and two threads, 2 to 64 rows, weights of 331,000 to 34 million numbers): at 8 rows MKL's own way
    takes 1.1 to 2.1 times as long as this one, at 4 and 32 up to 1.4 times; with fewer rows it is the fastest."""
    size = outputs * inputs
    if rows not in INTEL_ROWS or size < INTEL_SMALL_WEIGHT:
        return "rows"
    wide = size >= WIDE_WEIGHT
    if wide and (rows < 2 * FEWER_ROWS or outputs > inputs):
        return "onednn"
    return "columns" if rows >= FEWER_ROWS else "rows"


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x (M, K) by weight (N, K) to (M, N)."""
    if (few := _of_few_rows(x, weight)) is not None:
        return few
    large = x.shape[0] * weight.numel() >= ONEDNN_MULTIPLY_ADDS
    if not large or _ONEDNN is None or x.device.type != "cpu" or x.dtype != torch.float32:
        return F.linear(x, weight)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return _OneDnnLinear.apply(x, weight)  # type: ignore[return-value]
    return _product(_padded(x, _decoding_rows(x.shape[0])), weight)[: x.shape[0]]


class Linear(nn.Module):
    """A weight (out, in) and, if asked for, a bias (out,), over tokens (..., in)."""

    bias: Tensor | None
    compute: torch.dtype | None = None  # the type of its product; None: that of input and weight (`model.compute`)

    def __init__(self, inputs: int, outputs: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.register_parameter("bias", nn.Parameter(torch.empty(outputs)) if bias else None)

    @property
    def product_weight(self) -> Tensor:
        """The weight in the type of the product."""
        return self.weight if self.compute is None else self.weight.to(self.compute)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.compute is None else x.to(self.compute)
        weight = self.weight.to(x.dtype)
        y = linear(x, weight) if x.ndim == 2 else linear(x.flatten(0, -2), weight).unflatten(0, x.shape[:-1])
        return y if self.bias is None else y + self.bias.to(y.dtype)
