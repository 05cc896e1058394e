"""`config.json` of a Hugging Face checkpoint, in and out: one table of families (`families.py`), one reader and one writer.

Written so that transformers, vLLM and older readers all find what they look for: rope both in the present form
(`rope_parameters`) and the former one, `topk_method` and `scoring_func` although transformers does not save them (without
them vLLM builds no selection bias). What the model code does not compute is refused, never ignored: a key that no table holds is refused
too, unless it is known to change nothing (`HARMLESS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from etude.learn.model.config import ModelConfig
from etude.learn.model.families import ALIASES, COMMON_KEYS, FAMILIES, WRAPPERS, ModelFamily
from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.hf_layouts import LAYOUTS
from etude.learn.model.hf_rope import read_rope, rope_keys, write_rope
from etude.learn.weights.adapter_folder import is_adapter
from etude.learn.weights.hf_files import CheckpointError, read_object
from etude.learn.weights.quantized import scheme_of

# What the keys of a language model's tensors begin with within a multimodal checkpoint.
WRAPPED = "language_model."
# How many draft layers follow the trunk; DeepSeek's own key, and the one transformers writes.
DRAFT_LAYERS = "num_nextn_predict_layers"
FORMER_DRAFT_LAYERS = "num_mtp_layers"
# Keys of other architectures that change what a model computes, with the values at which they change nothing; null changes nothing either.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (1,), "no_rope_layers": ([],), "attention_chunk_size": (), "index_topk": (), "attention_multiplier": (),
    "attn_logit_softcapping": (0,), "final_logit_softcapping": (0,), "logit_scale": (1,), "logits_scaling": (1,), "alibi": (False,),
    "embedding_multiplier": (1,), "residual_multiplier": (1,), "qkv_bias": (False,), "mlp_bias": (False,), "attention_bias": (False,),
    "shared_expert_intermediate_size": (0,), "use_sliding_window": (False,), "clip_qkv": (), "use_bias": (False,),
    "use_mla": (), "layernorm_epsilon": (), "use_bidirectional_attention": (False,), "attention_out_bias": (False,), "use_logit_softcap": (False,),
    "rope_interleave": (False,), "rope_interleaved": (False,), "no_rope_layer_interval": (), "router_jitter_noise": (0,), "gating": (False,),
    "moe_router_logit_softcapping": (0,), "moe_apply_router_weight_on_input": (False,), "scale_depth": (), "scale_emb": (), "dim_model_base": (),
    "num_experts": (0,), "num_local_experts": (0, 1), "n_routed_experts": (0,), "layer_types": (), "mlp_layer_types": (),
    "attn_type_list": (), "layernorm_full_attention_alpha": (1,), "layernorm_full_attention_beta": (1,), "layernorm_linear_attention_alpha": (1,),
    "layernorm_linear_attention_beta": (1,), "layernorm_mlp_alpha": (1,), "layernorm_mlp_beta": (1,),
}  # fmt: skip
# Keys that change nothing of what is computed here: names and versions, the classes' defaults for generation and training, dropouts (training here
# has none), how a checkpoint was made, and sizes that other keys of the same file give too.
HARMLESS = frozenset(
    "model_type architectures auto_map transformers_version torch_dtype dtype use_cache bos_token_id eos_token_id pad_token_id sep_token_id "
    "eod_token_id cls_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id tokenizer_class name_or_path task_specific_params "
    "problem_type id2label label2id num_labels return_dict output_attentions output_hidden_states torchscript use_bfloat16 pruned_heads "
    "chunk_size_feed_forward is_encoder_decoder is_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder finetuning_task "
    "prefix min_length max_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p "
    "repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores "
    "return_dict_in_generate remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens tf_legacy_loss "
    "attention_dropout hidden_dropout residual_dropout embd_pdrop resid_pdrop attn_pdrop initializer_range init_std pretraining_tp "
    "keys_to_ignore_at_inference is_llama_config cache_implementation attn_implementation qk_head_dim head_dim num_key_value_heads "
    "output_router_logits router_aux_loss_coef aux_loss_alpha seq_aux ep_size moe_layer_freq quantization_config unsloth_version unsloth_fixed "
    "model_name initial_context_length experts_per_token enable_moe_fp32_combine moe_intermediate_size use_mtp num_mtp_modules "
    "mtp_transformer_layers shared_intermediate_size shared_moe_mode max_window_layers sliding_window sliding_window_pattern rms_norm_type "
    "norm_topk_prob_eps mlp_intermediate_size transformers.js_config".split()
)


def to_hf_config(config: ModelConfig) -> dict[str, Any]:
    """The content of config.json. Raises ValueError for a model that the files of its family can't describe."""
    raw = _written(config)
    read = from_hf_config(raw)
    for name in type(config).model_fields:
        if getattr(read, name) != getattr(config, name):
            raise ValueError(
                f"{name} is {getattr(config, name)!r:.80}, and a config.json of {config.family} says {getattr(read, name)!r:.80}: "
                "leave it out, or take a family that has it (docs/models.md)"
            )
    return raw


def _written(config: ModelConfig) -> dict[str, Any]:
    family = config.of_family
    keys = COMMON_KEYS | dict(family.keys)
    out: dict[str, Any] = {"architectures": [family.architecture], "model_type": config.family}
    out |= {key: getattr(config, field) for field, key in keys.items()} | dict(family.constants)
    if "qk_norm" in keys:
        out[keys["qk_norm"]] = config.qk_norm != "none"
    if config.attention == "latent":
        out |= {"q_lora_rank": config.q_lora_rank or None, "num_key_value_heads": config.heads}
    for name in family.layouts:
        out |= LAYOUTS[name].write(config)
    if config.experts:
        out[DRAFT_LAYERS] = config.mtp_layers
    elif config.mtp_layers:
        out[FORMER_DRAFT_LAYERS] = config.mtp_layers
    out |= {"attention_dropout": 0.0, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    return out | write_rope(config)


def read_config(folder: Path | str) -> ModelConfig:
    """The model that a checkpoint directory holds. Raises CheckpointError, or UnsupportedConfig naming the key."""
    return from_hf_config(raw_config(folder))


def raw_config(folder: Path | str) -> dict[str, Any]:
    """The content of a checkpoint directory's config.json. Raises CheckpointError."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        hint = "; it holds an adapter: merge it first, with etude model merge" if is_adapter(Path(folder)) else ""
        raise CheckpointError(f"{path} does not exist: {folder} is not a checkpoint directory{hint}")
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
    name = ALIASES.get(named, named) if isinstance(named, str) else None
    family = None if name is None else FAMILIES.get(name)
    if family is None or name is None:
        supported = ", ".join(sorted((*FAMILIES, *ALIASES, *WRAPPERS)))
        raise UnsupportedConfig(
            f'model_type is {named!r}; supported are {supported}, and with model.impl = "transformers" any causal language model that the '
            'installed transformers has (pip install "etude[transformers]")'
        )
    for key, needed in family.constants.items():
        if raw.get(key) is not None and raw[key] != needed:
            raise UnsupportedConfig(f"{key} is {raw[key]!r}, only {needed!r} is supported")
    _require_known(raw, family)
    try:
        scheme_of(raw.get("quantization_config"))
    except CheckpointError as error:
        raise UnsupportedConfig(str(error)) from error
    try:
        return ModelConfig(family=name, mtp_layers=_draft_layers(raw), **_fields(raw, family))
    except (ValidationError, TypeError) as error:  # TypeError: a number where a list belongs
        raise UnsupportedConfig(f"config.json does not describe a {name} model: {_findings(error)}") from error


def _fields(raw: Mapping[str, Any], family: ModelFamily) -> dict[str, Any]:
    """The fields of ModelConfig that a config.json sets, and what the family's class takes for those that it leaves out."""
    keys = COMMON_KEYS | dict(family.keys)
    fields = {field: _get(raw, key, field, family) for field, key in keys.items()}
    if "qk_norm" in keys:
        fields["qk_norm"] = "head" if fields["qk_norm"] else "none"
    for name in family.layouts:
        fields |= LAYOUTS[name].read(raw, fields["layers"], family)
    fields |= read_rope(raw, family)
    if not fields.get("window_layers"):
        fields.pop("window_rope_theta", None)
        fields.pop("window_partial_rotary", None)
    return fields


def _require_known(raw: Mapping[str, Any], family: ModelFamily) -> None:
    """Raises UnsupportedConfig for a key that this code does not read and that may change what the model computes."""
    read = {
        *COMMON_KEYS.values(),
        *family.keys.values(),
        *family.constants,
        *rope_keys(raw),
        DRAFT_LAYERS,
        FORMER_DRAFT_LAYERS,
    }
    read |= {alias for key in read for alias in ALTERNATIVES.get(key, ())}
    read |= {key for name in family.layouts for key in LAYOUTS[name].keys}
    for key, value in raw.items():
        if key in read or value is None or key.startswith("_"):
            continue
        if key == "use_qk_norm":
            if value != bool(family.switches.get("qk_norm")):
                raise UnsupportedConfig(f"{key} is {value!r:.60}, and a {raw.get('model_type')} model has it otherwise")
        elif key in NEUTRAL:
            if value not in NEUTRAL[key] and not _all_alike(key, value):
                raise UnsupportedConfig(f"{key} is {value!r:.60}, which this model code does not compute")
        elif key not in HARMLESS:
            raise UnsupportedConfig(
                f"{key} is {value!r:.60}: the model code does not know this key of {raw.get('model_type')}, and it may change what the model "
                "computes; remove it from config.json if it does not"
            )


def _all_alike(key: str, value: Any) -> bool:
    """Whether a list of layers' kinds says of each what is computed here anyway."""
    full = {"layer_types": "full_attention", "attn_type_list": 1}  # MiniMax: 0 is linear attention
    return key in full and isinstance(value, list) and all(kind == full[key] for kind in value)


def _findings(error: ValidationError | TypeError) -> str:
    """What pydantic found, one short line a field."""
    if isinstance(error, TypeError):
        return str(error)
    found = error.errors(include_url=False, include_input=True)
    return "; ".join(f"{'.'.join(map(str, e['loc'])) or 'config'}: {e['msg']} (is {e['input']!r:.60})" for e in found)


def _draft_layers(raw: Mapping[str, Any]) -> int:
    return next((raw[key] for key in (DRAFT_LAYERS, FORMER_DRAFT_LAYERS) if raw.get(key) is not None), 0)


# Other names of a key: transformers saves expert counts under its internal name, and some publishers use their own.
ALTERNATIVES = {
    "num_experts": ("num_local_experts",),
    "n_routed_experts": ("num_local_experts", "num_experts"),
    "num_local_experts": ("num_experts",),
    "num_experts_per_tok": ("experts_per_token", "num_experts_per_token"),
}


def _get(raw: Mapping[str, Any], key: str, field: str, family: ModelFamily) -> Any:
    for name in (key, *ALTERNATIVES.get(key, ())):
        if raw.get(name) is not None:
            return raw[name]
    if field in family.absent:
        return family.absent[field]
    heads = raw.get("num_attention_heads")
    if field == "kv_heads" and heads is not None:
        return heads
    if field == "head_dim" and isinstance(heads, int) and heads and isinstance(raw.get("hidden_size"), int):
        return raw["hidden_size"] // heads
    raise UnsupportedConfig(f"config.json lacks {key}")
