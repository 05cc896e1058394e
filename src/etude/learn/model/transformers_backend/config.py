"""The shape of a model that transformers computes, and whose code computes a checkpoint.

Torch-free until a model is built. transformers is an optional package (the extra `transformers`). Code that a checkpoint brings along is never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field

from etude.learn.model.config import ModelConfig
from etude.learn.model.families import ALIASES, FAMILIES, WRAPPERS
from etude.learn.model.hf_config import raw_config
from etude.learn.model.hf_errors import UnsupportedConfig
from etude.learn.model.settings import MOST_EXPERTS, MOST_LAYERS, MOST_POSITIONS, MOST_VOCABULARY, MOST_WIDTH, Impl

# Positions of a model whose config.json names no bound, as recurrent ones have none.
UNBOUNDED = 1 << 20
# Ropes whose frequencies depend on the longest position of a batch as soon as one lies beyond the original context.
LENGTH_DEPENDENT_ROPES = ("dynamic", "longrope")
# Further names under which configs of transformers give these numbers.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_EXPERTS_PER_TOKEN = ("num_experts_per_tok", "moe_top_k", "num_experts_per_token", "moe_k")


class TransformersConfig(ModelConfig):
    """What trainer and engine read of a model that transformers computes: its size and its cache. `raw` is the whole config.json.

    Fields of `ModelConfig` that describe our own decoder keep their defaults and say nothing here.
    """

    family: str = Field(description="model_type of config.json")
    vocab_size: Annotated[int, Field(ge=1, le=MOST_VOCABULARY)]
    hidden_size: Annotated[int, Field(ge=1, le=MOST_WIDTH)]
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    heads: int = 1
    kv_heads: int = 1
    head_dim: int = 1
    max_positions: Annotated[int, Field(ge=1, le=MOST_POSITIONS)] = UNBOUNDED
    experts: Annotated[int, Field(ge=0, le=MOST_EXPERTS)] = 0
    experts_per_token: int = 1
    attention: Literal["latent", "grouped"] = "grouped"
    cached: int = Field(0, ge=0, description="floats that one token holds in one layer of the engine's cache")
    routed_layers: tuple[int, ...] = Field((), description="layers whose choice of experts is recorded and replayed")
    raw: dict[str, Any] = Field(default_factory=dict, description="content of config.json")

    @property
    def context_length(self) -> int:
        return self.max_positions

    @property
    def cache_width(self) -> int:
        return self.cached

    @property
    def moe_layers(self) -> tuple[int, ...]:
        return self.routed_layers

    def _fits(self) -> TransformersConfig:  # type: ignore[override]
        return self


def transformers(module: str = "") -> Any:
    """The package, or a module of it. Raises UnsupportedConfig where it is not installed.

    Untyped: a type checker that follows its imports reads the whole package, which takes 3 GB and minutes.
    """
    if find_spec("transformers") is None:
        raise UnsupportedConfig(
            'model.impl = "transformers" needs the package transformers, which is not installed; pip install "etude[transformers]"'
        )
    return import_module("transformers" + (f".{module}" if module else ""))


def implementation_of(folder: Path | str, impl: Impl = "auto") -> Literal["etude", "transformers"]:
    """Whose code computes the checkpoint in `folder`: our own where its model type is one of ours. Raises CheckpointError, or UnsupportedConfig
    where transformers is needed and not installed."""
    if impl != "auto":
        return impl
    named = raw_config(folder).get("model_type")
    ours = not isinstance(named, str) or named in FAMILIES or named in ALIASES or named in WRAPPERS
    return "etude" if ours or not _transformers_has(str(named)) else "transformers"


def _transformers_has(model_type: str) -> bool:
    if find_spec("transformers") is None:
        return False
    return model_type in transformers().CONFIG_MAPPING


def describe_implementation(folder: Path | str, impl: Impl = "auto") -> str:
    """One line for a log. Raises as `implementation_of`."""
    chosen, named = implementation_of(folder, impl), raw_config(folder).get("model_type")
    why = "the recipe says so" if impl != "auto" else "the model type is one of ours"
    if impl == "auto" and chosen == "transformers":
        why = "the model code has no such model type"
    return f'model.impl = "{chosen}": model type {named}, {why}'


def read_transformers_config(folder: Path | str) -> TransformersConfig:
    """The model of a checkpoint directory. Raises CheckpointError, or UnsupportedConfig for a type that transformers does not have as a causal
    language model, and for a checkpoint that brings code."""
    require_no_code(folder)
    try:
        config = transformers().AutoConfig.from_pretrained(str(folder), trust_remote_code=False, local_files_only=True)
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnsupportedConfig(f"{folder}: transformers can't read config.json: {line:.200}") from error
    if type(config) not in transformers("models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedConfig(
            f"model_type is {config.model_type!r}, of which transformers has no causal language model"
        )
    return config_of(config)


def require_no_code(folder: Path | str) -> None:
    """Raises UnsupportedConfig for a checkpoint that asks for code of its own, of a type for which transformers has none."""
    raw = raw_config(folder)
    if raw.get("auto_map") and not _transformers_has(str(raw.get("model_type"))):
        raise UnsupportedConfig(
            f"{folder}/config.json has an auto_map, and the installed transformers has no class of {raw.get('model_type')}: code of a checkpoint "
            "is never run; take a transformers that has the class, or another checkpoint"
        )


def config_of(config: Any, **measured: Any) -> TransformersConfig:
    """Of a transformers configuration. `measured` are fields that a loaded model tells better."""
    text = config.get_text_config()
    heads = _first(text, ("num_attention_heads",), 1)
    hidden = _first(text, ("hidden_size",), 1)
    head_dim = _first(text, ("head_dim",), 0) or max(1, hidden // heads)
    kv_heads = _first(text, ("num_key_value_heads",), heads)
    fields: dict[str, Any] = {
        "family": config.model_type,
        "vocab_size": text.vocab_size,
        "hidden_size": hidden,
        "layers": _first(text, ("num_hidden_layers",), 1),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "cached": 2 * kv_heads * head_dim,
        "max_positions": _positions(text),
        "experts": _first(text, _EXPERTS, 0),
        "experts_per_token": _first(text, _EXPERTS_PER_TOKEN, 1),
        "raw": {key: value for key, value in config.to_dict().items() if key != "auto_map"},
    }
    return TransformersConfig(**(fields | measured))


def _first(config: Any, names: tuple[str, ...], default: int) -> int:
    """The first of these numbers that the configuration has; of several, one for each layer, the largest."""
    for name in names:
        given = _each(config, name)
        numbers = [value for value in given if isinstance(value, int) and not isinstance(value, bool)]
        if numbers:
            return max(numbers)
    return default


def _each(config: Any, name: str) -> list[Any]:
    """The value of a key, or one for each layer. Configurations whose layers differ (Gemma 4) refuse to be asked for all layers together."""
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    given = [getattr(layer, name, None) for layer in layers]
    return [value for each in given for value in (each if isinstance(each, list | tuple) else [each])]


def _positions(config: Any) -> int:
    """How far the model reads. A rope that depends on the longest position of the batch is used up to its original context alone, within which
    no token changes with its neighbours in the batch."""
    claimed = _first(config, ("max_position_embeddings", "n_positions", "max_seq_len"), UNBOUNDED)
    rope = getattr(config, "rope_parameters", None)
    ropes = [rope, *rope.values()] if isinstance(rope, Mapping) else []
    for each in ropes:
        if isinstance(each, Mapping) and each.get("rope_type") in LENGTH_DEPENDENT_ROPES:
            original = each.get("original_max_position_embeddings") or getattr(
                config, "original_max_position_embeddings", None
            )
            claimed = min(claimed, original or claimed)
    return min(claimed, MOST_POSITIONS)


def count_transformers(config: TransformersConfig) -> tuple[int, int]:
    """All parameters, and those that one token passes through: all but the experts that it does not visit."""
    import torch

    with torch.device("meta"):
        raw = {key: value for key, value in config.raw.items() if key != "model_type"}
        model = transformers().AutoModelForCausalLM.from_config(
            transformers().AutoConfig.for_model(config.family, **raw)
        )
    total = sum(p.numel() for p in model.parameters())
    routed = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
    return total, total - routed + routed * config.experts_per_token // max(config.experts, 1)


def refuse(config: ModelConfig, what: str) -> None:
    """Raises ValueError if the model is transformers': `what` is possible with our own classes alone."""
    if isinstance(config, TransformersConfig):
        _refuse(config, what)


def _refuse(config: TransformersConfig, what: str) -> NoReturn:
    raise ValueError(
        f'{what} is for models of our own code, and this {config.family} is computed by transformers (model.impl = "transformers"); leave it '
        "out, or take a checkpoint of a family in docs/models.md"
    )
