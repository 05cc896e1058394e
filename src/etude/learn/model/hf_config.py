"""`config.json` of a Hugging Face checkpoint, in and out, one table per family.

Written so that transformers, vLLM and older readers all find what they look for: rope both in the present form
(`rope_parameters`) and the former one, `topk_method` and `scoring_func` although transformers does not save them (without
them vLLM builds no selection bias). What the model code does not compute is refused, never ignored.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

from pydantic import ValidationError

from etude.learn.model.config import ModelConfig
from etude.learn.model.settings import Family, YarnSettings
from etude.learn.weights.hf_files import CheckpointError, read_object


class UnsupportedConfig(ValueError):
    """A config.json describes a model that this code would compute wrongly or not at all."""


ARCHITECTURES: dict[Family, str] = {"deepseek_v3": "DeepseekV3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
# By model_type: the families, and other names of their architectures.
FAMILIES: dict[str, Family] = {"deepseek_v3": "deepseek_v3", "qwen3_moe": "qwen3_moe", "kimi_k2": "deepseek_v3"}
# Multimodal models whose language model is one of the families: its config is the part "text_config".
WRAPPERS = ("kimi_k25",)
WRAPPED = "language_model."  # what the keys of its tensors begin with there

# our field -> key in config.json
SHARED_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
    "dense_intermediate": "intermediate_size",
    "moe_intermediate": "moe_intermediate_size",
    "experts_per_token": "num_experts_per_tok",
    "norm_topk": "norm_topk_prob",
}
FAMILY_FIELDS = {
    "deepseek_v3": {
        "experts": "n_routed_experts",
        "kv_lora_rank": "kv_lora_rank",
        "nope_dim": "qk_nope_head_dim",
        "rope_dim": "qk_rope_head_dim",
        "v_dim": "v_head_dim",
        "shared_experts": "n_shared_experts",
        "first_dense": "first_k_dense_replace",
        "expert_groups": "n_group",
        "groups_per_token": "topk_group",
        "routed_scale": "routed_scaling_factor",
    },
    "qwen3_moe": {
        "experts": "num_experts",
        "kv_heads": "num_key_value_heads",
        "head_dim": "head_dim",
        "sparse_step": "decoder_sparse_step",
    },
}
# How many draft layers follow the trunk; DeepSeek's own key, and the one transformers writes.
DRAFT_LAYERS = "num_nextn_predict_layers"
FORMER_DRAFT_LAYERS = "num_mtp_layers"
# Keys with one value that this code computes; a checkpoint may leave them out.
SHARED_FIXED: dict[str, Any] = {"hidden_act": "silu", "attention_bias": False, "tie_word_embeddings": False}
FAMILY_FIXED: dict[str, dict[str, Any]] = {
    "deepseek_v3": {"topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1},
    "qwen3_moe": {"use_sliding_window": False},
}
# Keys of other architectures that change what a model computes, with the values at which they change nothing; null changes nothing either.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (1,), "no_rope_layers": ([],), "attention_chunk_size": (), "index_topk": (), "attention_multiplier": (),
    "attn_logit_softcapping": (0,), "final_logit_softcapping": (0,), "logit_scale": (1,), "logits_scaling": (1,),
    "embedding_multiplier": (1,), "residual_multiplier": (1,), "qkv_bias": (False,), "mlp_bias": (False,),
    "shared_expert_intermediate_size": (0,),
}  # fmt: skip
YARN_FIELDS = {
    "factor": "factor",
    "original_positions": "original_max_position_embeddings",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "mscale": "mscale",
    "mscale_all_dim": "mscale_all_dim",
}


def to_hf_config(config: ModelConfig) -> dict[str, Any]:
    """The content of config.json."""
    family = config.family
    fields = SHARED_FIELDS | FAMILY_FIELDS[family]
    out: dict[str, Any] = {"architectures": [ARCHITECTURES[family]], "model_type": family, "dtype": "float32"}
    out |= {key: getattr(config, field) for field, key in fields.items()}
    out |= SHARED_FIXED | FAMILY_FIXED[family]
    out[DRAFT_LAYERS] = config.mtp_layers
    out |= {"attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    if family == "deepseek_v3":
        out["q_lora_rank"] = config.q_lora_rank or None
        out["rope_interleave"] = config.rope_interleave
        out["num_key_value_heads"] = config.heads
    else:
        out["mlp_only_layers"] = list(config.dense_layers)
    return out | _rope_out(config)


def _rope_out(config: ModelConfig) -> dict[str, Any]:
    kind: dict[str, Any] = {"rope_type": "default"}
    if config.yarn is not None:
        kind = {"rope_type": "yarn"} | {key: getattr(config.yarn, field) for field, key in YARN_FIELDS.items()}
    return {
        "rope_theta": config.rope_theta,
        "rope_parameters": kind | {"rope_theta": config.rope_theta},
        "rope_scaling": None if config.yarn is None else kind | {"type": "yarn"},
    }


def read_config(folder: Path | str) -> ModelConfig:
    """The model that a checkpoint directory holds. Raises CheckpointError, or UnsupportedConfig naming the key."""
    return from_hf_config(raw_config(folder))


def raw_config(folder: Path | str) -> dict[str, Any]:
    """The content of a checkpoint directory's config.json. Raises CheckpointError."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist: {folder} is not a checkpoint directory")
    return read_object(path)


def text_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The language model's part of a config.json: all of it, or what a multimodal model has under text_config."""
    if raw.get("model_type") not in WRAPPERS:
        return raw
    inner = raw.get("text_config")
    if not isinstance(inner, Mapping):
        raise UnsupportedConfig(f"model_type is {raw['model_type']!r}, and text_config, its language model, is missing")
    outer = {key: raw[key] for key in ("quantization_config",) if raw.get(key)}
    return {**inner, **outer}


def from_hf_config(raw: Mapping[str, Any]) -> ModelConfig:
    """The model that a config.json describes. Raises UnsupportedConfig naming the key."""
    raw = text_config(raw)
    named = raw.get("model_type")
    family = FAMILIES.get(named) if isinstance(named, str) else None
    if family is None:
        supported = ", ".join((*FAMILIES, *WRAPPERS))
        raise UnsupportedConfig(f"model_type is {named!r}; supported are {supported}")
    for key, needed in (SHARED_FIXED | FAMILY_FIXED[family]).items():
        if raw.get(key, needed) != needed:
            raise UnsupportedConfig(f"{key} is {raw[key]!r}, only {needed!r} is supported")
    _require_neutral(raw)
    if raw.get("quantization_config"):
        raise UnsupportedConfig(
            "quantization_config: weights are quantised; convert the checkpoint to bf16 or fp32 first"
        )
    fields = {field: _get(raw, key) for field, key in (SHARED_FIELDS | FAMILY_FIELDS[family]).items()}
    if family == "deepseek_v3":
        fields["q_lora_rank"] = raw.get("q_lora_rank") or 0
        fields["rope_interleave"] = raw.get("rope_interleave", True)
    try:
        if family == "qwen3_moe":
            fields["dense_layers"] = tuple(raw.get("mlp_only_layers") or ())
        return ModelConfig(family=family, mtp_layers=_draft_layers(raw), **fields, **_rope_in(raw))
    except (ValidationError, TypeError) as error:  # TypeError: a number where a list belongs
        raise UnsupportedConfig(f"config.json does not describe a {family} model: {_findings(error)}") from error


def _require_neutral(raw: Mapping[str, Any]) -> None:
    """Raises UnsupportedConfig for a key of NEUTRAL with another value, and for layers that do not attend to all positions."""
    rope = _object(raw, "rope_parameters") or _object(raw, "rope_scaling")
    for key, values in NEUTRAL.items():
        for found in (raw.get(key), rope.get(key)):
            if found is not None and found not in values:
                raise UnsupportedConfig(f"{key} is {found!r:.60}, which this model code does not compute")
    kinds = raw.get("layer_types") or []
    other = [kind for kind in kinds if kind != "full_attention"] if isinstance(kinds, list) else [kinds]
    if other:
        raise UnsupportedConfig(f"layer_types holds {other[0]!r:.60}; only 'full_attention' is supported")


def _findings(error: ValidationError | TypeError) -> str:
    """What pydantic found, one short line a field."""
    if isinstance(error, TypeError):
        return str(error)
    found = error.errors(include_url=False, include_input=True)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']} (is {e['input']!r:.60})" for e in found)


def _draft_layers(raw: Mapping[str, Any]) -> int:
    return next((raw[key] for key in (DRAFT_LAYERS, FORMER_DRAFT_LAYERS) if raw.get(key) is not None), 0)


# transformers saves Qwen's expert count under its internal name.
ALIASES = {"num_experts": "num_local_experts", "n_routed_experts": "num_local_experts"}


def _get(raw: Mapping[str, Any], key: str) -> Any:
    for name in (key, ALIASES.get(key)):
        if name is not None and raw.get(name) is not None:
            return raw[name]
    raise UnsupportedConfig(f"config.json lacks {key}")


def _object(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = raw.get(key) or {}
    if not isinstance(found, Mapping):
        raise UnsupportedConfig(f"{key} is {found!r:.60}, where an object belongs")
    return found


def _rope_in(raw: Mapping[str, Any]) -> dict[str, Any]:
    rope = dict(_object(raw, "rope_parameters") or _object(raw, "rope_scaling"))
    theta = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return {"rope_theta": theta}
    if kind != "yarn":
        raise UnsupportedConfig(f"rope_type is {kind!r}; supported are default and yarn")
    if rope.get("attention_factor") is not None or not rope.get("truncate", True):
        raise UnsupportedConfig(
            "rope_parameters set attention_factor or truncate=false, which YaRN here derives and does"
        )
    yarn = {field: rope[key] for field, key in YARN_FIELDS.items() if rope.get(key) is not None}
    for field in ("factor", "original_positions"):
        if field not in yarn:
            raise UnsupportedConfig(f"rope_parameters lack {YARN_FIELDS[field]}")
    # Absent temperatures mean off to transformers, while our own default is on.
    return {"rope_theta": theta, "yarn": YarnSettings.model_validate({"mscale": 0.0, "mscale_all_dim": 0.0} | yarn)}
