"""Whichever library multiplies, the product and its gradients are the same fp32 numbers."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from etude.learn.model import linear as module
from etude.learn.model.linear import Linear, linear

OPERATORS = {"AMD, AVX-512": "_ONEDNN", "AVX2": "_ONEDNN_OF_AVX2", "Intel, AVX-512": "_ONEDNN_OF_INTEL"}


@pytest.fixture(params=list(OPERATORS))
def cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way of products on every kind of CPU, whichever this one is."""
    for kind, name in OPERATORS.items():
        monkeypatch.setattr(module, name, module._onednn_operator(kind == request.param))
    return request.param


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 128, 256), (700, 128, 80), (2048, 64, 256), (33, 256, 1024)])
@pytest.mark.parametrize("threshold", [0, module.ONEDNN_MULTIPLY_ADDS])
def test_product_and_gradients_equal_torch_in_double(
    shape: tuple[int, int, int], threshold: int, cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ONEDNN_MULTIPLY_ADDS", threshold)
    rows, inner, outer = shape
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, inner, generator=generator, requires_grad=True)
    weight = torch.randn(outer, inner, generator=generator, requires_grad=True)
    upstream = torch.randn(rows, outer, generator=generator)
    got = linear(x, weight)
    exact = F.linear(x.double(), weight.double())
    gradients = torch.autograd.grad(got, (x, weight), upstream)
    expected = torch.autograd.grad(exact, (x, weight), upstream.double())
    for a, b in zip((got, *gradients), (exact, *expected), strict=True):
        assert (a - b).abs().max() <= 1e-6 * b.abs().max() * 4
    with torch.no_grad():
        # Padded to another number of rows, which may take another kernel.
        assert (linear(x, weight) - got).abs().max() <= 1e-6 * got.abs().max()


@pytest.mark.parametrize("rows", [1, 3, 4, 8, 13, 16, 17, 32, 33, 64, 65])
@pytest.mark.parametrize("shape", [(4096, 64), (512, 256), (128, 512), (256, 64)], ids=["head", "up", "down", "small"])
def test_a_decoding_step_multiplies_as_torch_does(
    rows: int, shape: tuple[int, int], cpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"HEAD_WEIGHT": 1 << 18, "WIDE_WEIGHT": 1 << 17, "INTEL_SMALL_WEIGHT": 1 << 16, "SMALL_WEIGHT": 1 << 14}
    for name, size in sizes.items():
        monkeypatch.setattr(module, name, size)
    generator = torch.Generator().manual_seed(rows)
    x, weight = torch.randn(rows, shape[1], generator=generator), torch.randn(*shape, generator=generator)
    with torch.no_grad():
        got = linear(x, weight)
    exact = x.double() @ weight.double().t()
    assert got.shape == (rows, shape[0]) and got.is_contiguous()
    assert (got - exact).abs().max() <= 4e-6 * exact.abs().max()


def test_a_frozen_weight_passes_the_gradient_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ONEDNN_MULTIPLY_ADDS", 0)
    layer = Linear(6, 5)
    torch.nn.init.normal_(layer.weight)
    layer.weight.requires_grad_(False)
    x = torch.randn(2, 3, 6, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None and torch.allclose(x.grad, layer.weight.sum(0).expand(2, 3, 6), atol=1e-5)
    assert layer.weight.grad is None
