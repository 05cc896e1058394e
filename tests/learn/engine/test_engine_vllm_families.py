"""The real vLLM samples from what the trainer computes, family by family, before and after a swap; an engine that does not is refused. Needs
ETUDE_VLLM_PYTHON (docs/vllm.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from vllm_lab import collect, settings, vllm_python

from etude.agent.policy.protocol import Request
from etude.learn.engine.adapter_merger import merger_for
from etude.learn.engine.probe import EngineMismatch, ProbeMismatch, compare, probe_prompts, require_same_distribution
from etude.learn.engine.vllm.service import VllmService
from etude.learn.model.adapters import add_adapters, is_adapter_tensor, trained_state
from etude.learn.model.checkpoint import load_checkpoint
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.weights.publisher import Publisher
from etude.learn.weights.store import WeightStore

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]

DENSE = dict(num_key_value_heads=2, head_dim=32)
EXPERTS = dict(num_experts_per_tok=2, moe_intermediate_size=64)
# vLLM's CPU build takes latent attention of these widths alone.
LATENT = dict(num_key_value_heads=4, kv_lora_rank=512, qk_nope_head_dim=32, qk_rope_head_dim=64, v_head_dim=32)
GROUPS = dict(n_group=4, topk_group=2, n_shared_experts=1, n_routed_experts=8, first_k_dense_replace=1)
# In the published config.json, and nowhere in what transformers writes; vLLM takes softmax where it finds no scoring_func.
PUBLISHED_KEYS = dict(topk_method="noaux_tc", scoring_func="sigmoid")
MINIMAX_KEYS = dict(scoring_func="sigmoid", use_routing_bias=True, use_qk_norm=True, qk_norm_type="per_layer")
GROWING = {
    **dict(
        rope_type="yarn", rope_theta=1e6, factor=32.0, original_max_position_embeddings=16, llama_4_scaling_beta=0.3
    ),
    **dict(mscale=1.0, mscale_all_dim=1.0),
}
LAGUNA = dict(
    sliding_window=16,
    layer_types=["full_attention", "sliding_attention"],
    num_attention_heads_per_layer=[4, 8],
    moe_routed_scaling_factor=1.7,
)
# What the families that vLLM may answer for have in their small configurations.
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "llama": {**DENSE, "tie_word_embeddings": True},
    "mistral": {**DENSE, "sliding_window": None},
    "ministral3": {**DENSE, "rope_parameters": GROWING},
    "smollm3": DENSE,
    "qwen2": DENSE,
    "qwen3": DENSE,
    "seed_oss": DENSE,
    "glm4": DENSE,
    "olmo2": DENSE,
    "olmo3": {**DENSE, "sliding_window": 16},
    "gemma3_text": {**DENSE, "sliding_window": 16, "query_pre_attn_scalar": 32},
    "mixtral": {**DENSE, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**DENSE, **EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 64},
    "qwen3_moe": {**DENSE, **EXPERTS, "num_experts": 8},
    "glm4_moe": {**DENSE, **EXPERTS, **GROUPS, "use_qk_norm": True},
    "minimax_m2": {**DENSE, **EXPERTS, "num_local_experts": 8, "rotary_dim": 16, **MINIMAX_KEYS},
    "hy_v3": {**DENSE, **EXPERTS, "num_experts": 8, "num_shared_experts": 1, "first_k_dense_replace": 1},
    "laguna": {**DENSE, **EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 64, **LAGUNA},
    "deepseek_v2": {**LATENT, **EXPERTS, **GROUPS, "q_lora_rank": None, "topk_method": "greedy"},
    "deepseek_v3": {**LATENT, **EXPERTS, **GROUPS, "q_lora_rank": 64, **PUBLISHED_KEYS},
    "glm4_moe_lite": {**LATENT, **EXPERTS, **GROUPS, "q_lora_rank": 64, **PUBLISHED_KEYS},
}
# Where vLLM's CPU build does not sample what the trainer computes, or does not start.
REFUSED = {
    "laguna": "vLLM 0.32's router for CPUs takes sigmoid scores with groups of experts alone",
    "ministral3": "vLLM 0.32 does not scale queries by their positions: mean k3 0.029 where that begins after 16 tokens",
    "hy_v3": "vLLM 0.32 looks for expert_hidden_dim, which this config does not have",
    "minimax_m2": "vLLM 0.32 can't load its weights a second time: its norms' loader has no name, which the reload asks for",
}
PROMPTS = probe_prompts(512)
COUNT = 24


def checkpoint(folder: Path, family: str) -> Path:
    """A small random model as transformers writes it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family, vocab_size=512, hidden_size=128, num_hidden_layers=2, intermediate_size=128, num_attention_heads=4,
        max_position_embeddings=512, pad_token_id=None, bos_token_id=None, eos_token_id=None, **CONFIGURATIONS[family],
    )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
    model.save_pretrained(folder)
    return folder


class FamilyWorld:
    """vLLM over a store that begins with a family's checkpoint."""

    def __init__(self, folder: Path, family: str, lora: LoraSettings | None = None, **arguments: Any) -> None:
        lora = lora or LoraSettings()
        made = checkpoint(folder / "checkpoint", family)
        self.model = load_checkpoint(made)
        if lora.rank:
            add_adapters(self.model, lora)
        self.publisher = Publisher(WeightStore(folder / "weights"), anchor_every=25)
        self.publisher.publish(trained_state(self.model), 0)
        merge = merger_for(made, lora)
        own = {"arguments": {"enforce_eager": True, "block_size": 32, **arguments}, "python": vllm_python()}
        chosen = settings("", vllm=own, max_len=256)
        self.service = VllmService(made, self.publisher.store, chosen, folder / "vllm", merge=merge)
        self.serve()

    def serve(self) -> None:
        self.service.stage()
        self.service.apply()

    def mismatch(self, name: str) -> ProbeMismatch:
        asked = [(n, Request(f"{name}-{n}", (), prompt_ids=p, max_tokens=COUNT, seed=n)) for n, p in enumerate(PROMPTS)]
        self.service.submit_many("me", asked)
        found = collect(self.service, len(PROMPTS), 240.0)
        compared = compare(self.model, [(p, found[n].tokens) for n, p in enumerate(PROMPTS)])  # type: ignore[misc]
        print(
            json.dumps({"sampled": name, "k3": compared.mean_k3, "p99": compared.p99_dlogp, "max": compared.max_dlogp})
        )
        return compared


@pytest.mark.parametrize("family", sorted(CONFIGURATIONS.keys() - REFUSED.keys()))
def test_vllm_samples_what_the_trainer_computes_before_and_after_a_swap(tmp_path, family):
    world = FamilyWorld(tmp_path, family)
    try:
        require_same_distribution(world.mismatch("first"), family, "fp32")
        with torch.no_grad():
            for parameter in world.model.parameters():
                parameter += 0.1 * parameter.std() * torch.randn_like(parameter) if parameter.numel() > 1 else 0
        world.publisher.publish(world.model.state_dict(), 1)
        world.serve()
        found = world.mismatch("swapped")
        require_same_distribution(found, family, "fp32")
        assert found.routes_equal and (found.routes > 0) == bool(world.model.config.moe_layers)
    finally:
        world.service.close()


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_vllm_samples_what_a_trainer_of_adapters_computes(tmp_path, family):
    world = FamilyWorld(tmp_path, family, LoraSettings(rank=4))
    try:
        with torch.no_grad():
            for name, tensor in world.model.state_dict().items():
                if is_adapter_tensor(name):
                    tensor += 0.1 * torch.randn_like(tensor)
        world.publisher.publish(trained_state(world.model), 1)
        world.serve()
        require_same_distribution(world.mismatch("adapted"), family, "fp32")
    finally:
        world.service.close()


def test_an_engine_whose_positions_are_rotated_by_another_base_is_refused(tmp_path):
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 300.0}}
    world = FamilyWorld(tmp_path, "llama", hf_overrides=rope)
    try:
        with pytest.raises(EngineMismatch, match="llama samples from another distribution .* mean k3"):
            require_same_distribution(world.mismatch("broken"), "llama", "fp32")
    finally:
        world.service.close()
