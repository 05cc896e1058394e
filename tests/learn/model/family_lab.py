"""Small random models of every family as transformers' classes make them: their configurations and all of their weights are drawn."""

from __future__ import annotations

import random
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Mistral4ForCausalLM
from transformers.utils import logging

from etude.learn.model.families import FAMILIES

logging.disable_progress_bar()  # a line for every model otherwise
VOCABULARY = 97
ALWAYS_TIED_OR_NOT = ("gpt_oss", "deepseek_v2", "deepseek_v3", "glm4_moe_lite")  # as their configurations start
HALF_ROTARY = ("glm4", "glm4_moe", "minimax_m2", "laguna")
GROWING = ("ministral3", "mistral4")  # their queries grow with the position


def transformers_model(family: str, seed: int) -> torch.nn.Module:
    """transformers' model of a configuration drawn from `seed`, in eager attention, fp32."""
    config = AutoConfig.for_model(family, **family_configuration(family, random.Random(f"{family} {seed}")))
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(seed)
    peer = peer_class(family)._from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in (*peer.named_parameters(), *peer.named_buffers()):
            if "inv_freq" in name or "embed_scale" in name:
                continue
            noise = torch.empty(tensor.shape).normal_(0, 1, generator=generator)
            if tensor.ndim == 1 or name.endswith("_bias"):
                tensor.add_(0.1 * noise)
            else:
                rows = "embed" in name or "lm_head" in name
                tensor.copy_(noise * (0.3 if rows else 0.5 * tensor.shape[-1] ** -0.5))
    return peer


def peer_class(family: str) -> Any:
    """transformers' class; it has registered Mistral 4's with its images alone."""
    if family == "mistral4":
        return Mistral4ForCausalLM
    return AutoModelForCausalLM._model_mapping[type(AutoConfig.for_model(family))]


def family_configuration(family: str, dice: random.Random) -> dict[str, Any]:
    keys, switches = FAMILIES[family].keys, FAMILIES[family].switches
    heads = dice.choice((2, 4))
    config: dict[str, Any] = dict(
        vocab_size=VOCABULARY, hidden_size=dice.choice((32, 48)), num_hidden_layers=dice.choice((2, 3, 4)), intermediate_size=40,
        num_attention_heads=heads, max_position_embeddings=128, rms_norm_eps=dice.choice((1e-6, 1e-5)), pad_token_id=None, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    if family not in ALWAYS_TIED_OR_NOT:
        config["tie_word_embeddings"] = dice.random() < 0.5
    if switches.get("attention") == "grouped":
        config |= {"num_key_value_heads": dice.choice((1, 2)), "head_dim": dice.choice((8, 16))}
    else:
        config |= dict(
            q_lora_rank=dice.choice((None, 24)), kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=14
        )
        config["num_key_value_heads"] = heads
    if family == "laguna":
        config["num_attention_heads_per_layer"] = [dice.choice((2, 4)) for _ in range(config["num_hidden_layers"])]
    for key in ("attention_bias", "mlp_bias", "qkv_bias", "use_qk_norm", "norm_topk_prob", "attention_out_bias"):
        if key in keys.values():
            config[key] = dice.random() < 0.5
    if switches.get("experts") != 0:
        config |= {keys["experts"]: 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    return config | _own_keys(family, dice) | {"rope_parameters": _rope(family, config, dice)}


def _own_keys(family: str, dice: random.Random) -> dict[str, Any]:
    """What only some families have."""
    layouts, keys = FAMILIES[family].layouts, FAMILIES[family].keys.values()
    config: dict[str, Any] = {}
    if "layer_types" in layouts:
        config["sliding_window"] = 7
        if not FAMILIES[family].window_period:
            config |= {"use_sliding_window": dice.random() < 0.5, "max_window_layers": 1}
    if "sliding_window" in layouts:
        config["sliding_window"] = dice.choice((None, 7))
    if "mlp_only_layers" in layouts:
        config |= {"decoder_sparse_step": dice.choice((1, 2)), "mlp_only_layers": dice.choice(([], [1]))}
    if "n_group" in keys:
        config |= {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5, "n_shared_experts": dice.choice((1, 2))}
    if "first_k_dense_replace" in keys:
        config["first_k_dense_replace"] = dice.choice((0, 1))
    own = {
        "deepseek_v2": {"topk_method": dice.choice(("greedy", "group_limited_greedy"))},
        "qwen2_moe": {"shared_expert_intermediate_size": 20},
        "laguna": {
            "shared_expert_intermediate_size": 20,
            "moe_routed_scaling_factor": 1.7,
            "gating": dice.choice((True, "per-element")),
        },
        "gemma3_text": {"query_pre_attn_scalar": dice.choice((16, 24))},
        "hy_v3": {"num_shared_experts": dice.choice((1, 2)), "router_scaling_factor": 1.7},
    }
    return config | own.get(family, {})


def _rope(family: str, config: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    kinds = {
        "gemma3_text": ("default", "linear"),
        "olmo3": ("default", "linear", "yarn"),
        "laguna": ("default", "linear", "yarn"),
    }
    kinds |= {family: ("yarn",) for family in GROWING}
    kind = dice.choice(kinds.get(family, ("default", "linear", "dynamic", "llama3", "yarn", "longrope")))
    rope: dict[str, Any] = {"rope_type": kind, "rope_theta": dice.choice((10000.0, 50000.0))}
    if kind != "default":
        rope["factor"] = 4.0
    if kind in ("llama3", "yarn", "longrope"):
        rope["original_max_position_embeddings"] = 32
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    if family in GROWING:
        rope |= {"original_max_position_embeddings": 12, "llama_4_scaling_beta": 0.3}
    if (
        kind == "yarn" and not FAMILIES[family].layer_ropes
    ):  # transformers reads truncate of no entry for a kind of layer
        rope["truncate"] = dice.random() < 0.5
    latent = "qk_rope_head_dim" in config
    if kind == "yarn" and latent:
        rope |= {"mscale": 1.0, "mscale_all_dim": 0.7}
    width = 8 if latent else config["head_dim"] // (2 if family in HALF_ROTARY else 1)
    if kind == "longrope":
        rope |= {
            "short_factor": [1.0 + 0.1 * n for n in range(width // 2)],
            "long_factor": [2.0 + 0.1 * n for n in range(width // 2)],
        }
    if family in HALF_ROTARY:
        rope["partial_rotary_factor"] = 0.5
    if not FAMILIES[family].layer_ropes:
        return rope
    local: dict[str, Any] = {"rope_type": "default", "rope_theta": dice.choice((10000.0, 50000.0))}
    if family == "laguna":
        local["partial_rotary_factor"] = dice.choice((0.5, 1.0))
    return {"full_attention": rope, "sliding_attention": local}
