"""Experts in MXFP8 and NVFP4: each product multiplies what the formats make of its operands, and no token is changed by others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from etude.learn.formats.mxfp8 import round_to_mxfp8
from etude.learn.formats.nvfp4 import round_to_nvfp4
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import compute_in
from etude.learn.model.expert_products import product_of
from etude.learn.model.init import new_model
from etude.learn.model.linear import linear
from etude.learn.model.settings import ExpertProducts, ModelSettings

FORMATS: tuple[ExpertProducts, ...] = ("mxfp8", "nvfp4")
SIZES = dict(hidden_size=64, layers=2, heads=4, dense_intermediate=64, max_positions=64, init_head_std=0.3)
MOE = dict(family="deepseek_v3", kv_lora_rank=16, experts=4, experts_per_token=2, moe_intermediate=48, shared_experts=1)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def model() -> CausalLM:
    return new_model(ModelSettings.model_validate(SIZES | MOE), 97)


def decibels(exact: Tensor, found: Tensor) -> float:
    return float(10 * torch.log10(exact.square().sum() / (found - exact).square().sum()))


def products(products: ExpertProducts) -> tuple[Tensor, Tensor, Tensor]:
    """Output and both gradients of a product of 96 tokens."""
    x, weight, grad = drawn(96, 80).requires_grad_(), drawn(64, 80, seed=1).requires_grad_(), drawn(96, 64, seed=2)
    y = product_of(products)(x, weight)
    return y.detach(), *torch.autograd.grad(y, (x, weight), grad)


def test_operands_are_rounded_along_what_their_product_contracts() -> None:
    x, weight, grad = drawn(96, 80), drawn(64, 80, seed=1), drawn(96, 64, seed=2)
    y, dx, dweight = products("nvfp4")
    assert torch.equal(y, linear(round_to_nvfp4(x, "row"), round_to_nvfp4(weight, "tensor")))
    assert torch.equal(dx, linear(round_to_mxfp8(grad), round_to_mxfp8(weight.t())))
    assert torch.equal(dweight, linear(round_to_mxfp8(grad.t()), round_to_mxfp8(x.t())))
    assert torch.equal(products("mxfp8")[0], linear(round_to_mxfp8(x), round_to_mxfp8(weight)))


def test_products_keep_the_precision_of_their_formats() -> None:
    exact = products("plain")
    mxfp8, nvfp4 = ([decibels(*pair) for pair in zip(exact, products(each), strict=True)] for each in FORMATS)
    # torchao's bars for MXFP8: 27, 25 and 24 dB (test_training.py of its moe_training); NVFP4's forward was measured here.
    assert mxfp8[0] >= 27 and mxfp8[1] >= 25 and mxfp8[2] >= 24
    assert 16 < nvfp4[0] < 20 and nvfp4[1:] == mxfp8[1:]


@pytest.mark.parametrize("products", FORMATS)
def test_a_tokens_output_does_not_depend_on_its_batch(products: ExpertProducts) -> None:
    x, weight = drawn(40, 64), drawn(48, 64, seed=1)
    multiply = product_of(products)
    whole = multiply(x, weight)
    behind = multiply(torch.cat((x, 1e4 * drawn(5, 64, seed=3))), weight)[:40]
    assert torch.equal(behind, whole)
    apart = torch.cat([multiply(x[:7], weight), multiply(x[7:], weight)])
    assert decibels(whole, apart) > 120  # the sums of a product may be taken in another order


@pytest.mark.parametrize("products", FORMATS)
def test_a_model_sees_no_later_token_and_goes_back_to_plain(products: ExpertProducts) -> None:
    network = model()
    ids = torch.randint(0, 97, (1, 24), generator=torch.Generator().manual_seed(0))
    plain = network(ids).logits
    compute_in(network, "fp32", experts=products)
    rounded = network(ids).logits
    assert not torch.equal(rounded, plain)
    other = ids.clone()
    other[0, 20:] = (other[0, 20:] + 1) % 97
    assert torch.allclose(network(other).logits[:, :20], rounded[:, :20], rtol=0, atol=1e-5)
    compute_in(network, "fp32")
    assert torch.equal(network(ids).logits, plain)


@pytest.mark.parametrize("products", FORMATS)
def test_a_step_in_a_low_precision_lowers_the_loss(products: ExpertProducts) -> None:
    network = model()
    compute_in(network, "fp32", recompute=True, experts=products)
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    ids = torch.randint(0, 97, (4, 24), generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(8):
        logits = network(ids).logits[:, :-1].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 0.5


def test_a_dense_model_is_refused() -> None:
    dense = new_model(ModelSettings.model_validate(SIZES | dict(family="qwen3", kv_heads=2, head_dim=16)), 97)
    with pytest.raises(ValueError, match='expert_products = "nvfp4", and the model has no experts'):
        compute_in(dense, "fp32", experts="nvfp4")
    compute_in(dense, "bf16")
