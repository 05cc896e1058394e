"""Adapters with products in bf16 and with blocks that are computed twice: gradients, and what a step of training leaves."""

from __future__ import annotations

import pytest
import torch
from family_lab import VOCABULARY
from torch import Tensor

from etude.learn.model.adapters import (
    adapters_off,
    add_adapters,
    base_digest,
    fold_adapters,
    is_adapter_tensor,
    merged_state,
)
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import Compute, compute_in, computing
from etude.learn.model.init import new_model
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import ModelSettings
from etude.learn.model.step_memory import ModelSize, training_bytes
from etude.learn.train.settings import PolicyStepSettings, SftSettings

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


def with_base(family: str, kind: str, base: str) -> CausalLM:
    """As `adapted`, of a model whose weights are numbers of bf16, as published ones are."""
    model = adapted(family, kind)
    adapters = {name: tensor for name, tensor in model.state_dict().items() if is_adapter_tensor(name)}
    plain = {name: t.to(torch.bfloat16).float() for name, t in model.state_dict().items() if name not in adapters}
    fresh = CausalLM(model.config)
    fresh.load_state_dict(plain)
    targets = {} if family == "llama" else KINDS[kind]
    dora = {"dora": True} if kind == "dora" else {}
    add_adapters(fresh, LoraSettings.model_validate({"rank": 4, "alpha": 8, "base": base} | targets | dora))
    fresh.load_state_dict(adapters, strict=False)
    return fresh


@combinations
def test_a_base_held_in_bf16_gives_the_gradients_and_weights_of_one_held_in_fp32(family: str, kind: str) -> None:
    whole, rounded = (with_base(family, kind, base) for base in ("fp32", "bf16"))
    frozen = [
        p for p in rounded.blocks.parameters() if p.ndim > 1 and not p.requires_grad and p.dtype == torch.bfloat16
    ]
    assert sum(p.numel() for p in frozen) > 0.5 * sum(p.numel() for p in rounded.blocks.parameters())
    assert all(p.dtype == torch.float32 for p in rounded.parameters() if p.requires_grad)
    expected, found = gradients(whole, "bf16"), gradients(rounded, "bf16")
    assert expected.keys() == found.keys() and all(torch.equal(found[name], one) for name, one in expected.items())
    merged, own = merged_state(whole), merged_state(rounded)
    assert all(own[name].dtype == one.dtype and torch.equal(own[name], one) for name, one in merged.items())
    assert base_digest(rounded) == base_digest(whole)
    with torch.no_grad(), adapters_off(rounded), adapters_off(whole):
        assert torch.equal(rounded(IDS).logits, whole(IDS).logits), "in fp32 too, as held-out losses are measured"


def test_a_base_in_bf16_needs_products_in_bf16() -> None:
    lora = {"rank": 4, "base": "bf16"}
    for table, changes in (
        (SftSettings, {"loop": {"compute": "bf16", "steps": 1}}),
        (PolicyStepSettings, {"compute": "bf16"}),
    ):
        with pytest.raises(ValueError, match='lora.base = "bf16" with .*compute = "fp32"'):
            table.model_validate({"lora": lora})
        assert table.model_validate({"lora": lora} | changes).lora.base == "bf16"


def test_the_memory_of_a_base_in_bf16_is_predicted() -> None:
    model = with_base("llama", "lora", "bf16")
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    sizes = [
        ModelSize.of(model.config, 64, 64, LoraSettings.model_validate({"rank": 4, "base": base}))
        for base in ("fp32", "bf16")
    ]
    assert sizes[0].parameters * 4 - held == 2 * sizes[1].rounded > 0
    assert training_bytes(sizes[0], 64) - training_bytes(sizes[1], 64) == 2 * sizes[1].rounded
