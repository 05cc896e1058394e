"""Products in bf16 with fp32 weights, and blocks that are computed twice: gradients, agreement of engine and trainer, transformers as the peer."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from family_lab import VOCABULARY, transformers_model
from torch import Tensor

from etude.core.trace.segment import NO_ROUTE, Rollout, Segment
from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import MAX_MEAN_K3, sample_probe
from etude.learn.engine.settings import EngineSettings
from etude.learn.engine.swap import load_checked
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.compute import Compute, compute_in, computing, hold_rounded
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.train.policy_step import PolicyTrainer
from etude.learn.train.settings import PolicyStepSettings

FAMILIES = ("llama", "qwen3_moe", "deepseek_v3", "gpt_oss")  # dense, experts, latent attention, sinks with biases
BF16_MEAN_K3 = 1e-4
GRADIENT_ERROR = 0.03  # bf16 against fp32, of the whole gradient's norm: products keep 8 bits
PEER_MARGIN = 1.2  # of transformers' own error in bf16
IDS = torch.randint(0, VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(2))


def tiny(family: str) -> CausalLM:
    shape = dict(
        hidden_size=32, layers=3, heads=2, kv_lora_rank=16, nope_dim=8, rope_dim=8, v_dim=8, kv_heads=1, head_dim=16
    )
    shape |= dict(dense_intermediate=64, moe_intermediate=16, experts=8, experts_per_token=2, max_positions=256)
    foreign = {"llama": "expert", "gpt_oss": "dense"}.get(family, "-")
    chosen = {name: value for name, value in shape.items() if foreign not in name}
    return new_model(ModelSettings.model_validate({"family": family, "init_head_std": 0.3, **chosen}), VOCABULARY)


def gradients(model: CausalLM, compute: Compute, recompute: bool = False) -> dict[str, Tensor]:
    """Of a sum of log-probabilities, with the experts of the fp32 model."""
    with torch.no_grad():
        routes = model(IDS, return_routes=True).routes if model.config.experts else None
    model.zero_grad()
    with computing(model, compute, recompute):
        logits = model(IDS, forced_experts=routes).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), IDS[:, 1:].flatten()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_recomputed_blocks_give_the_same_gradients_bit_for_bit(family: str, compute: Compute) -> None:
    model = tiny(family)
    kept, recomputed = gradients(model, compute), gradients(model, compute, recompute=True)
    assert kept.keys() == recomputed.keys() and len(kept) > 5
    assert all(torch.equal(gradient, recomputed[name]) for name, gradient in kept.items())


def test_recomputing_keeps_less_for_the_backward_pass() -> None:
    model = tiny("llama")

    def kept(recompute: bool) -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: Tensor) -> Tensor:
            sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with computing(model, "fp32", recompute), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            model(IDS).logits.sum()
        return sum(sizes.values())

    assert kept(recompute=True) < 0.5 * kept(recompute=False)


@pytest.mark.parametrize("family", FAMILIES)
def test_bf16_gradients_are_those_of_fp32_up_to_rounding(family: str) -> None:
    model = tiny(family)
    exact, rounded = gradients(model, "fp32"), gradients(model, "bf16")
    assert all(gradient.dtype == torch.float32 for gradient in rounded.values())
    difference = sum(float((rounded[name] - g).square().sum()) for name, g in exact.items()) ** 0.5
    error = difference / sum(float(g.square().sum()) for g in exact.values()) ** 0.5
    print(f"{family}: {error:.4f}")
    assert 0 < error < GRADIENT_ERROR


def rollouts_of(core: EngineCore) -> list[Rollout]:
    """The probe's tokens as the trainer gets them, with the routes that the engine took."""
    found = []
    for number, (prompt, tokens) in enumerate(sample_probe(core)):
        count, length = len(prompt), len(prompt) + len(tokens.ids)
        routes = None
        if tokens.routes is not None:
            routes = np.full((length, *tokens.routes.shape[1:]), NO_ROUTE, tokens.routes.dtype)
            routes[tokens.route_start : tokens.route_start + len(tokens.routes)] = tokens.routes
        segment = Segment(
            ids=np.array([*prompt, *tokens.ids], np.int32),
            sampled=np.arange(length) >= count,
            logprobs=np.array([0.0] * count + list(tokens.logprobs), np.float32),
            versions=np.array([-1] * count + [0] * len(tokens.ids), np.int32),
            routes=routes,
        )
        found.append(Rollout(str(number), "task", number // 4, [segment]))
    return found


def k3_of(rollouts: list[Rollout], model: CausalLM, compute: Compute) -> float:
    """The mismatch that the policy trainer measures."""
    settings = PolicyStepSettings(compute=compute, replay_ratio=0.0, unreplayed_every=0)
    return PolicyTrainer(copy.deepcopy(model), None, settings).score(rollouts).mismatch.k3


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_engine_and_trainer_agree_in_either_type(family: str, compute: Compute) -> None:
    model = tiny(family)
    core = EngineCore(copy.deepcopy(model), EngineSettings(max_slots=16, max_batch=16, max_len=96, compute=compute))
    rollouts = rollouts_of(core)
    k3 = k3_of(rollouts, model, compute)
    print(family, compute, k3)
    assert k3 <= (MAX_MEAN_K3 if compute == "fp32" else BF16_MEAN_K3)
    if compute == "bf16":
        assert core.cache.buffer.dtype == torch.bfloat16
        assert k3_of(rollouts, model, "fp32") > 10 * MAX_MEAN_K3  # the comparison sees the type


def test_an_engine_in_bf16_takes_fp32_weights_and_no_other_type() -> None:
    model = tiny("qwen3_moe")
    held = copy.deepcopy(model)
    hold_rounded(held)
    bytes_of = lambda m: sum(p.nbytes for p in m.blocks.parameters())
    assert bytes_of(held) < 0.6 * bytes_of(model)
    assert held.head.weight.dtype == held.blocks[-1].feed.router.weight.dtype == torch.float32  # type: ignore[union-attr]
    state = {name: tensor + 0.5 for name, tensor in model.state_dict().items()}
    load_checked(held, state)
    assert all(torch.equal(own.float(), state[name].to(own.dtype).float()) for name, own in held.state_dict().items())
    with pytest.raises(ValueError, match=r"torch\.float32 in the model"):
        load_checked(held, {name: tensor.bfloat16() for name, tensor in state.items()})


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gemma3_text"])
def test_logits_in_bf16_are_as_near_to_fp32_as_those_of_transformers(family: str, tmp_path: Path) -> None:
    peer = transformers_model(family, 0)
    peer.save_pretrained(tmp_path)  # type: ignore[operator]
    model = load_checkpoint(tmp_path)
    with torch.no_grad():
        exact = peer(IDS).logits
        compute_in(model, "bf16")
        ours, theirs = model(IDS).logits, peer.to(torch.bfloat16)(IDS).logits.float()
    rms = lambda x: float((x - exact).square().mean().sqrt() / exact.std())
    print(family, rms(ours), rms(theirs))
    assert 1e-5 < rms(ours) <= PEER_MARGIN * rms(theirs)
