"""Small random models of classes of transformers that the model code does not have."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

logging.disable_progress_bar()
logging.set_verbosity_error()  # hybrids announce the kernels that are not installed
VOCABULARY = 97
COMMON: dict[str, Any] = dict(
    vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, pad_token_id=None, bos_token_id=None, eos_token_id=None,
)  # fmt: skip
LINEAR = dict(
    head_dim=8, linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8, num_hidden_layers=4
)  # fmt: skip
LATENT: dict[str, Any] = dict(
    q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=4,
)  # fmt: skip
GROUPED_EXPERTS: dict[str, Any] = dict(
    n_routed_experts=8, num_experts_per_tok=2, n_group=4, topk_group=2, moe_intermediate_size=16, n_shared_experts=1, first_k_dense_replace=1,
)  # fmt: skip
# Scores of few index heads are often exactly zero, and `topk` then chooses among equals by the length of the row.
SPARSE: dict[str, Any] = LATENT | GROUPED_EXPERTS | dict(index_topk=8, index_n_heads=32, index_head_dim=16)
# By model type what differs from COMMON: classes that take our attention, and classes that go by rows.
ATTENTION: dict[str, dict[str, Any]] = {
    "stablelm": {"partial_rotary_factor": 0.5},
    "phi3": {},
    "gemma2": {"head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8},
    "granite": {
        "logits_scaling": 4.0,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
    },
    "cohere2": {
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "starcoder2": {"sliding_window": 6},
    "gpt_neox": {},
    "olmoe": {"num_experts": 6, "num_experts_per_tok": 2},
    "gemma4_text": dict(
        head_dim=8,
        global_head_dim=16,
        sliding_window=5,
        hidden_size_per_layer_input=8,
        vocab_size_per_layer_input=VOCABULARY,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        enable_moe_block=True,
        num_experts=6,
        top_k_experts=2,
        moe_intermediate_size=16,
    ),
    "dots1": GROUPED_EXPERTS,
}
ROWS: dict[str, dict[str, Any]] = {
    "bloom": {},
    "falcon_h1": {
        **dict(mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1, mamba_expand=1)
    },
    "bamba": dict(mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_expand=2, attn_layer_indices=[1]),
    "jamba": dict(attn_layer_period=2, attn_layer_offset=1, num_experts=2, mamba_d_state=4),
    "deepseek_v32": SPARSE,
    "glm_moe_dsa": SPARSE,
    "deepseek_v4": SPARSE | dict(num_hidden_layers=4, head_dim=16),
    "qwen3_next": LINEAR
    | dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16),
}
SHAPES = ATTENTION | ROWS


def peer(model_type: str, seed: int = 0, **other: Any) -> Any:
    """transformers' model, all of its weights drawn, fp32."""
    torch.manual_seed(seed)
    config = AutoConfig.for_model(model_type, **(COMMON | SHAPES.get(model_type, {}) | other))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.empty(parameter.shape).normal_(0, 1, generator=generator)
            parameter.add_(noise * (0.1 if parameter.ndim == 1 else 0.5 * parameter.shape[-1] ** -0.5))
    return model


def tokens(seed: int, length: int) -> torch.Tensor:
    """(1, length) drawn ids."""
    return torch.randint(0, VOCABULARY, (1, length), generator=torch.Generator().manual_seed(seed))
