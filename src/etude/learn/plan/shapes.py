"""Shapes of large published models, for a plan without a download. As in their config.json; Kimi K2.5 without its vision tower."""

from __future__ import annotations

from typing import Any

from etude.learn.model.config import ModelConfig

_LATENT = {"q_lora_rank": 1536, "kv_lora_rank": 512, "nope_dim": 128, "rope_dim": 64, "v_dim": 128}

SHAPES: dict[str, dict[str, Any]] = {
    "kimi-k2.5": {
        **_LATENT,
        "family": "deepseek_v3",
        "vocab_size": 163_840,
        "hidden_size": 7168,
        "layers": 61,
        "heads": 64,
        "dense_intermediate": 18_432,
        "experts": 384,
        "experts_per_token": 8,
        "moe_intermediate": 2048,
        "shared_experts": 1,
        "first_dense": 1,
        "max_positions": 262_144,
        "mtp_layers": 1,  # published without; RL's draft layers are this many (docs/mtp.md)
    },
    "deepseek-v3": {
        **_LATENT,
        "family": "deepseek_v3",
        "vocab_size": 129_280,
        "hidden_size": 7168,
        "layers": 61,
        "heads": 128,
        "dense_intermediate": 18_432,
        "experts": 256,
        "experts_per_token": 8,
        "expert_groups": 8,
        "groups_per_token": 4,
        "moe_intermediate": 2048,
        "shared_experts": 1,
        "first_dense": 3,
        "max_positions": 163_840,
        "mtp_layers": 1,
    },
    "glm-4.5-air": {
        "family": "glm4_moe",
        "vocab_size": 151_552,
        "hidden_size": 4096,
        "layers": 46,
        "heads": 96,
        "kv_heads": 8,
        "head_dim": 128,
        "qkv_bias": True,
        "partial_rotary": 0.5,
        "dense_intermediate": 10_944,
        "experts": 128,
        "experts_per_token": 8,
        "moe_intermediate": 1408,
        "shared_experts": 1,
        "first_dense": 1,
        "max_positions": 131_072,
        "mtp_layers": 1,
    },
    "qwen3-30b-a3b": {
        "family": "qwen3_moe",
        "vocab_size": 151_936,
        "hidden_size": 2048,
        "layers": 48,
        "heads": 32,
        "kv_heads": 4,
        "head_dim": 128,
        "dense_intermediate": 6144,
        "experts": 128,
        "experts_per_token": 8,
        "moe_intermediate": 768,
        "max_positions": 262_144,
    },
    "qwen3-4b": {
        "family": "qwen3",
        "vocab_size": 151_936,
        "hidden_size": 2560,
        "layers": 36,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "dense_intermediate": 9728,
        "tied": True,
        "max_positions": 262_144,
    },
}


def published_shape(name: str) -> ModelConfig:
    """Raises ValueError for a name that is not in `SHAPES`."""
    if name not in SHAPES:
        raise ValueError(f"no preset is called {name!r:.80}; known are {', '.join(SHAPES)}; --model takes any other")
    return ModelConfig.model_validate(SHAPES[name])
