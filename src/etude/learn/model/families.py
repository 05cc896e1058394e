"""Families of published models: what tells each from the others, and how its files spell it. Torch-free.

There is one decoder. A family is a set of its switches that the family's Hugging Face class fixes, the keys of `config.json` that set the others, and
the names of its tensors where they differ from the common ones (`hf_keys.py`). The values are those of the classes in transformers; the parity tests
compare every family with its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Fields = Mapping[str, Any]


@dataclass(frozen=True)
class ModelFamily:
    """One `model_type`.

    - `architecture`: the class that `config.json` names.
    - `switches`: fields of `Architecture` that the class fixes. A recipe that sets another value is refused.
    - `starts`: defaults of a new model of this family where they differ from those of `Architecture`.
    - `keys`: field -> key of `config.json`, in addition to `COMMON_KEYS`.
    - `absent`: what transformers takes for a field whose key `config.json` leaves out or sets to null. A family whose class rotates a part of each
      head names `partial_rotary` here.
    - `constants`: keys with one value that this code computes; they are written too.
    - `layouts`: keys that describe layers one by one (`LAYOUTS` of `hf_layouts.py`).
    - `window_period`: without `layer_types` every n-th layer sees all positions and the others a window; 0: every layer sees all.
    - `own_rope`: its class takes unusual rope for a config.json without any, so there has to be some.
    - `layer_ropes`: windowed layers have a rope without scaling, and `config.json` an entry for each kind of layer.
    - `tensors`: our name within a block -> its names on disk there, where they differ from the common ones.
    """

    architecture: str
    switches: Fields = field(default_factory=dict)
    starts: Fields = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    absent: Fields = field(default_factory=dict)
    constants: Fields = field(default_factory=dict)
    layouts: tuple[str, ...] = ()
    window_period: int = 0
    own_rope: bool = False
    layer_ropes: bool = False
    tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


# our field -> key of config.json, in every family
COMMON_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
    "tied": "tie_word_embeddings",
}
_DENSE = {"dense_intermediate": "intermediate_size"}
_GROUPED = {"kv_heads": "num_key_value_heads", "head_dim": "head_dim"}
_BIASES = {"qkv_bias": "attention_bias", "out_bias": "attention_bias"}
_LATENT = {
    "q_lora_rank": "q_lora_rank",
    "kv_lora_rank": "kv_lora_rank",
    "nope_dim": "qk_nope_head_dim",
    "rope_dim": "qk_rope_head_dim",
    "v_dim": "v_head_dim",
}
_EXPERTS = {"moe_intermediate": "moe_intermediate_size", "experts_per_token": "num_experts_per_tok"}
_DEEPSEEK_EXPERTS = _EXPERTS | {
    "experts": "n_routed_experts",
    "shared_experts": "n_shared_experts",
    "first_dense": "first_k_dense_replace",
    "routed_scale": "routed_scaling_factor",
    "expert_groups": "n_group",
    "groups_per_token": "topk_group",
    "norm_topk": "norm_topk_prob",
}
_QWEN_EXPERTS = _EXPERTS | {
    "experts": "num_experts",
    "norm_topk": "norm_topk_prob",
    "sparse_step": "decoder_sparse_step",
}

_DENSE_ONLY = {"attention": "grouped", "experts": 0}
_SOFTMAX_EXPERTS = {"attention": "grouped", "router_scoring": "softmax", "selection_bias": False}
_SIGMOID_EXPERTS = {"router_scoring": "sigmoid", "selection_bias": True}
# A new model's stretch, whose queries grow with their positions (Ministral 3, Mistral 4).
_GROWING = {"yarn": {"mscale": 1.0, "mscale_all_dim": 1.0}, "query_growth": 0.1}
_SILU = {"hidden_act": "silu"}
_NO_BIASES = {"attention_bias": False}
# Positions of the norms that come after attention and feed-forward, by the families' names for them.
_NORMS_AFTER = {
    "attention_out_norm.weight": ("post_attention_layernorm.weight",),
    "feed_out_norm.weight": ("post_feedforward_layernorm.weight",),
}
_ONE_SHARED_EXPERT = {
    "feed.shared.gate_up.weight": ("mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"),
    "feed.shared.down.weight": ("mlp.shared_expert.down_proj.weight",),
}
_MIXTRAL_TENSORS = {
    "feed.router.weight": ("block_sparse_moe.gate.weight",),
    "feed.router.bias": ("block_sparse_moe.e_score_correction_bias",),
    "feed.experts.gate_up": ("block_sparse_moe.experts.{e}.w1.weight", "block_sparse_moe.experts.{e}.w3.weight"),
    "feed.experts.down": ("block_sparse_moe.experts.{e}.w2.weight",),
}

_LLAMA = ModelFamily(
    "LlamaForCausalLM",
    switches=_DENSE_ONLY,
    keys=_DENSE | _GROUPED | _BIASES | {"feed_bias": "mlp_bias"},
    absent={"qkv_bias": False, "out_bias": False, "feed_bias": False, "tied": False, "norm_eps": 1e-6},
    constants=_SILU,
)
_DEEPSEEK_V3 = ModelFamily(
    "DeepseekV3ForCausalLM",
    switches={"attention": "latent"} | _SIGMOID_EXPERTS,
    starts={"shared_experts": 1, "first_dense": 1, "rope_interleave": True},
    keys=_DENSE | _LATENT | _DEEPSEEK_EXPERTS | {"rope_interleave": "rope_interleave"},
    absent={"q_lora_rank": 0, "rope_interleave": True, "tied": False},
    constants=_SILU | _NO_BIASES | {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1},
)

FAMILIES: dict[str, ModelFamily] = {
    "llama": _LLAMA,
    "mistral": ModelFamily(
        "MistralForCausalLM",
        switches=_DENSE_ONLY,
        keys=_DENSE | _GROUPED,
        absent={"tied": False, "window": 0},
        constants=_SILU | _NO_BIASES,
        layouts=("sliding_window",),
    ),
    "ministral3": ModelFamily(
        "Ministral3ForCausalLM",
        switches=_DENSE_ONLY,
        starts=_GROWING,
        keys=_DENSE | _GROUPED,
        absent={"tied": False, "window": 0, "query_growth": 0.0},
        constants=_SILU | _NO_BIASES,
        layouts=("sliding_window",),
        own_rope=True,
    ),
    "smollm3": ModelFamily(
        "SmolLM3ForCausalLM",
        switches=_DENSE_ONLY,
        keys=_DENSE | _GROUPED | _BIASES | {"feed_bias": "mlp_bias"},
        absent={"qkv_bias": False, "out_bias": False, "feed_bias": False, "tied": True, "rope_theta": 2e6},
        constants=_SILU,
        layouts=("no_rope_layers", "layer_types"),
    ),
    "qwen2": ModelFamily(
        "Qwen2ForCausalLM",
        switches=_DENSE_ONLY | {"qkv_bias": True},
        keys=_DENSE | _GROUPED,
        absent={"tied": False},
        constants=_SILU,
        layouts=("layer_types",),
    ),
    "qwen3": ModelFamily(
        "Qwen3ForCausalLM",
        switches=_DENSE_ONLY | {"qk_norm": "head"},
        keys=_DENSE | _GROUPED | _BIASES,
        absent={"qkv_bias": False, "out_bias": False, "tied": False},
        constants=_SILU,
        layouts=("layer_types",),
    ),
    "seed_oss": ModelFamily(
        "SeedOssForCausalLM",
        switches=_DENSE_ONLY,
        keys=_DENSE | _GROUPED | {"qkv_bias": "attention_bias", "out_bias": "attention_out_bias", "feed_bias": "mlp_bias"},
        absent={"qkv_bias": True, "out_bias": False, "feed_bias": False, "tied": False},
        constants=_SILU,
    ),
    "glm4": ModelFamily(
        "Glm4ForCausalLM",
        switches=_DENSE_ONLY | {"norm_place": "both", "rope_interleave": True},
        starts={"partial_rotary": 0.5},
        keys=_DENSE | _GROUPED | {"qkv_bias": "attention_bias"},
        absent={"qkv_bias": True, "tied": False, "partial_rotary": 0.5},
        constants=_SILU,
        tensors={
            "attention_out_norm.weight": ("post_self_attn_layernorm.weight",),
            "feed_out_norm.weight": ("post_mlp_layernorm.weight",),
            "feed.gate_up.weight": ("mlp.gate_up_proj.weight",),
        },
    ),
    "olmo2": ModelFamily(
        "Olmo2ForCausalLM",
        switches=_DENSE_ONLY | {"qk_norm": "layer", "norm_place": "after"},
        keys=_DENSE | _GROUPED | _BIASES,
        absent={"qkv_bias": False, "out_bias": False, "tied": False},
        constants=_SILU,
        tensors=_NORMS_AFTER,
    ),
    "olmo3": ModelFamily(
        "Olmo3ForCausalLM",
        switches=_DENSE_ONLY | {"qk_norm": "layer", "norm_place": "after"},
        keys=_DENSE | _GROUPED | _BIASES,
        absent={"qkv_bias": False, "out_bias": False, "tied": False, "rope_theta": 5e5},
        constants=_SILU,
        layouts=("layer_types",),
        window_period=4,
        layer_ropes=True,
        starts={"window_rope_theta": 1e4},
        tensors=_NORMS_AFTER,
    ),
    "gemma3_text": ModelFamily(
        "Gemma3ForCausalLM",
        switches=_DENSE_ONLY
        | {"qk_norm": "head", "norm_place": "both", "norm_offset": True, "embed_scale": True, "activation": "gelu_tanh"},
        keys=_DENSE | _GROUPED | _BIASES | {"score_width": "query_pre_attn_scalar"},
        # Files of Gemma 3 4B and larger leave out what is the class's default.
        absent={
            "qkv_bias": False, "out_bias": False, "tied": True, "score_width": 256, "rope_theta": 1e6, "window_rope_theta": 1e4,
            "vocab_size": 262_208, "heads": 8, "kv_heads": 4, "head_dim": 256, "max_positions": 131_072, "norm_eps": 1e-6,
        },  # fmt: skip
        constants={"hidden_activation": "gelu_pytorch_tanh", "use_bidirectional_attention": False},
        layouts=("layer_types",),
        window_period=6,
        layer_ropes=True,
        starts={"window_rope_theta": 1e4},
        tensors={
            "attention_out_norm.weight": ("post_attention_layernorm.weight",),
            "feed_norm.weight": ("pre_feedforward_layernorm.weight",),
            "feed_out_norm.weight": ("post_feedforward_layernorm.weight",),
        },
    ),
    "mixtral": ModelFamily(
        "MixtralForCausalLM",
        switches=_SOFTMAX_EXPERTS | {"norm_topk": True},
        keys=_GROUPED | {"experts": "num_local_experts", "experts_per_token": "num_experts_per_tok", "moe_intermediate": "intermediate_size"},
        absent={"tied": False, "rope_theta": 1e6},
        constants=_SILU,
        layouts=("sliding_window",),
        tensors=_MIXTRAL_TENSORS,
    ),
    "qwen2_moe": ModelFamily(
        "Qwen2MoeForCausalLM",
        switches=_SOFTMAX_EXPERTS | {"shared_experts": 1, "shared_gate": True},
        starts={"shared_intermediate": 128},
        keys=_DENSE | _GROUPED | _QWEN_EXPERTS | {"qkv_bias": "qkv_bias", "shared_intermediate": "shared_expert_intermediate_size"},
        absent={"qkv_bias": True, "tied": False, "sparse_step": 1},
        constants=_SILU | {"use_sliding_window": False},
        layouts=("mlp_only_layers",),
        tensors=_ONE_SHARED_EXPERT,
    ),
    "qwen3_moe": ModelFamily(
        "Qwen3MoeForCausalLM",
        switches=_SOFTMAX_EXPERTS | {"qk_norm": "head"},
        starts={"dense_layers": (0,)},
        keys=_DENSE | _GROUPED | _QWEN_EXPERTS | _BIASES,
        absent={"qkv_bias": False, "out_bias": False, "tied": False, "sparse_step": 1},
        constants=_SILU | {"use_sliding_window": False},
        layouts=("mlp_only_layers",),
    ),
    "glm4_moe": ModelFamily(
        "Glm4MoeForCausalLM",
        switches={"attention": "grouped"} | _SIGMOID_EXPERTS,
        starts={"shared_experts": 1, "first_dense": 1, "partial_rotary": 0.5},
        keys=_DENSE | _GROUPED | _DEEPSEEK_EXPERTS | {"qkv_bias": "attention_bias", "qk_norm": "use_qk_norm"},
        absent={"qkv_bias": False, "tied": False, "partial_rotary": 0.5, "qk_norm": False},
        constants=_SILU,
    ),
    "minimax_m2": ModelFamily(
        "MiniMaxM2ForCausalLM",
        switches={"attention": "grouped", "qk_norm": "layer", "norm_topk": True} | _SIGMOID_EXPERTS,
        keys=_GROUPED | {"experts": "num_local_experts", "experts_per_token": "num_experts_per_tok", "moe_intermediate": "intermediate_size"},
        absent={"tied": False, "rope_theta": 5e6, "partial_rotary": 1.0},
        constants=_SILU | {"scoring_func": "sigmoid", "use_routing_bias": True, "use_qk_norm": True, "qk_norm_type": "per_layer"},
        layouts=("rotary_dim",),
        tensors=_MIXTRAL_TENSORS,
    ),
    "hy_v3": ModelFamily(
        "HYV3ForCausalLM",
        switches={"attention": "grouped", "qk_norm": "head", "norm_topk": True} | _SIGMOID_EXPERTS,
        starts={"shared_experts": 1, "first_dense": 1},
        keys=_DENSE
        | _GROUPED
        | _BIASES
        | _EXPERTS
        | {"experts": "num_experts", "shared_experts": "num_shared_experts", "routed_scale": "router_scaling_factor"},
        absent={"qkv_bias": False, "out_bias": False, "tied": False, "rope_theta": 11158840.0},
        constants=_SILU | {"mlp_bias": False},
        layouts=("mlp_layer_types",),
        tensors={
            "feed.router.weight": ("mlp.router.gate.weight",),
            "feed.router.bias": ("mlp.expert_bias",),
            "feed.shared.gate_up.weight": ("mlp.shared_mlp.gate_proj.weight", "mlp.shared_mlp.up_proj.weight"),
            "feed.shared.down.weight": ("mlp.shared_mlp.down_proj.weight",),
        },
    ),
    "laguna": ModelFamily(
        "LagunaForCausalLM",
        switches={"attention": "grouped", "qk_norm": "head", "norm_topk": True, "shared_experts": 1} | _SIGMOID_EXPERTS,
        starts={"attention_gate": "head", "first_dense": 1, "shared_intermediate": 128, "partial_rotary": 0.5, "window_rope_theta": 1e4}
        | {"window_partial_rotary": 1.0},
        keys=_DENSE
        | _GROUPED
        | _BIASES
        | _EXPERTS
        | {"experts": "num_experts", "routed_scale": "moe_routed_scaling_factor", "shared_intermediate": "shared_expert_intermediate_size"},
        absent={"qkv_bias": False, "out_bias": False, "tied": False, "rope_theta": 5e5, "partial_rotary": 1.0, "window_rope_theta": 1e4}
        | {"window_partial_rotary": 1.0, "routed_scale": 1.0, "window": 512},
        constants=_SILU | {"moe_apply_router_weight_on_input": False, "moe_router_logit_softcapping": 0.0},
        layouts=("layer_types", "mlp_layer_types", "layer_heads", "gating"),
        tensors={"feed.router.bias": ("mlp.experts.e_score_correction_bias",)} | _ONE_SHARED_EXPERT,
        own_rope=True,
        layer_ropes=True,
    ),
    "gpt_oss": ModelFamily(
        "GptOssForCausalLM",
        switches=_SOFTMAX_EXPERTS
        | {"norm_topk": True, "sinks": True, "router_bias": True, "expert_bias": True, "activation": "clamped_swiglu"},
        starts={"qkv_bias": True, "out_bias": True},
        keys=_GROUPED
        | _BIASES
        | {"experts": "num_local_experts", "experts_per_token": "num_experts_per_tok", "moe_intermediate": "intermediate_size"},
        absent={"qkv_bias": True, "out_bias": True, "tied": False, "rope_theta": 150000.0},
        constants=_SILU | {"swiglu_limit": 7.0, "swiglu_alpha": 1.702},
        layouts=("layer_types",),
        window_period=2,
        tensors={"feed.router.weight": ("mlp.router.weight",), "feed.router.linear_bias": ("mlp.router.bias",)},
    ),
    "deepseek_v2": ModelFamily(
        "DeepseekV2ForCausalLM",
        switches={"attention": "latent", "router_scoring": "softmax", "selection_bias": False, "rope_interleave": True}
        | {"group_rank": "best", "norm_topk": False},
        starts={"shared_experts": 2, "first_dense": 1},
        keys=_DENSE | _LATENT | {key: name for key, name in _DEEPSEEK_EXPERTS.items() if key != "norm_topk"},
        absent={"q_lora_rank": 0, "tied": False, "expert_groups": 1, "groups_per_token": 1},
        constants=_SILU | _NO_BIASES | {"scoring_func": "softmax", "moe_layer_freq": 1, "norm_topk_prob": False},
        layouts=("topk_method",),
    ),
    "deepseek_v3": _DEEPSEEK_V3,
    "mistral4": ModelFamily(
        "Mistral4ForCausalLM",
        switches={"attention": "latent", "router_scoring": "softmax", "selection_bias": False},
        starts={"shared_experts": 1, "rope_interleave": True} | _GROWING,
        keys=_DEEPSEEK_V3.keys,
        absent={"q_lora_rank": 0, "rope_interleave": True, "tied": False, "first_dense": 0, "expert_groups": 1, "groups_per_token": 1}
        | {"norm_topk": True, "routed_scale": 1.0, "query_growth": 0.0},
        constants=_SILU | _NO_BIASES,
        own_rope=True,
        tensors={"feed.experts.gate_up": ("mlp.experts.gate_up_proj",), "feed.experts.down": ("mlp.experts.down_proj",)},
    ),
    "glm4_moe_lite": replace(
        _DEEPSEEK_V3,
        architecture="Glm4MoeLiteForCausalLM",
        keys={field: key for field, key in _DEEPSEEK_V3.keys.items() if field != "first_dense"},
        constants=_SILU | _NO_BIASES | {"topk_method": "noaux_tc", "scoring_func": "sigmoid"},
        layouts=("mlp_layer_types",),
    ),
}  # fmt: skip

# Other names of the same architectures, by `model_type`.
ALIASES = {"kimi_k2": "deepseek_v3", "ministral": "mistral"}
# Multimodal models whose language model is one of the families: its config is the part "text_config".
WRAPPERS = ("kimi_k25", "gemma3", "mistral3")
