"""Adapters with products in bf16 and with blocks that are computed twice: gradients, and what a step of training leaves."""

from __future__ import annotations

import pytest
import torch
from family_lab import VOCABULARY
from torch import Tensor

from etude.learn.model.adapters import add_adapters, fold_adapters, is_adapter_tensor
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute, compute_in, computing
from etude.learn.model.init import new_model
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import ModelSettings

GRADIENT_ERROR = (
    0.04  # bf16 against fp32, of the norm: products keep 8 bits, and an adapter's path has two more of them
)
EVERYWHERE = ["attention", "dense", "experts"]
KINDS = {"lora": {"targets": EVERYWHERE}, "rslora": {"rslora": True}, "dora": {"dora": True}}
FAMILIES = ("llama", "qwen3_moe", "deepseek_v3")  # dense, experts, latent attention
IDS = torch.randint(0, VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(2))

combinations = pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in FAMILIES for kind in KINDS])


def adapted(family: str, kind: str) -> CausalLM:
    """A tiny model with adapters that change it."""
    shape = dict(
        hidden_size=32, layers=3, heads=2, kv_lora_rank=16, nope_dim=8, rope_dim=8, v_dim=8, kv_heads=1, head_dim=16
    )
    shape |= dict(dense_intermediate=64, moe_intermediate=16, experts=8, experts_per_token=2, max_positions=256)
    chosen = {name: value for name, value in shape.items() if family != "llama" or "expert" not in name}
    model = new_model(ModelSettings.model_validate({"family": family, "init_head_std": 0.3, **chosen}), VOCABULARY)
    settings = dict(KINDS[kind])
    if family == "llama":
        settings.pop("targets", None)
    add_adapters(model, LoraSettings.model_validate({"rank": 4, "alpha": 8, **settings}))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if is_adapter_tensor(name):
                tensor.add_(torch.empty(tensor.shape).normal_(0, 0.05, generator=generator))
    return model


def gradients(model: CausalLM, compute: Compute, recompute: bool = False) -> dict[str, Tensor]:
    """Of a sum of log-probabilities, with the experts of the fp32 model."""
    with torch.no_grad():
        routes = model(IDS, return_routes=True).routes if model.config.experts else None
    model.zero_grad()
    with computing(model, compute, recompute):
        logits = model(IDS, forced_experts=routes).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), IDS[:, 1:].flatten()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def relative(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    difference = sum(float((found[name] - gradient).square().sum()) for name, gradient in exact.items()) ** 0.5
    return difference / sum(float(gradient.square().sum()) for gradient in exact.values()) ** 0.5


@combinations
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_recomputed_blocks_give_adapters_the_same_gradients_bit_for_bit(
    family: str, kind: str, compute: Compute
) -> None:
    model = adapted(family, kind)
    kept, recomputed = gradients(model, compute), gradients(model, compute, recompute=True)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert kept.keys() == recomputed.keys() == trained and all(map(is_adapter_tensor, trained))
    assert all(torch.equal(gradient, recomputed[name]) and gradient.any() for name, gradient in kept.items())


@combinations
def test_bf16_gradients_of_adapters_are_those_of_fp32_up_to_rounding(family: str, kind: str) -> None:
    model = adapted(family, kind)
    exact, rounded = gradients(model, "fp32"), gradients(model, "bf16")
    assert exact.keys() == rounded.keys() and all(g.dtype == torch.float32 for g in rounded.values())
    kinds = {name.rpartition(".")[2] for name in exact}
    for tensor in kinds:  # A, B and magnitude each, since one outweighs the others
        some = {name: gradient for name, gradient in exact.items() if name.endswith(tensor)}
        error = relative(rounded, some)
        print(f"{family} {kind} {tensor}: {error:.4f}")
        assert 0 < error < GRADIENT_ERROR, tensor


@combinations
def test_merged_weights_in_bf16_compute_what_adapters_in_bf16_do(family: str, kind: str) -> None:
    """The trainer has adapters next to its weights, the engine merged ones: both round, each in its place."""
    model = adapted(family, kind)
    with torch.no_grad():
        exact = model(IDS, return_routes=True)
        routes = exact.routes if model.config.experts else None
        compute_in(model, "bf16")
        apart = model(IDS, forced_experts=routes).logits
        fold_adapters(model)
        merged = model(IDS, forced_experts=routes).logits
    rms = lambda x: float((x - exact.logits).square().mean().sqrt() / exact.logits.std())
    print(family, kind, rms(apart), rms(merged))
    assert 0 < rms(apart) < 0.03 and rms(apart) <= 1.5 * rms(merged)
