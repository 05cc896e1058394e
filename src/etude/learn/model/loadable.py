"""Whether the model code can load a checkpoint directory, without loading it: its config, its index, names, shapes and types of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from etude.learn.model.adapter_files import put_adapter
from etude.learn.model.adapters import adapted_modules
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import belongs, check_size, dequantizer_of, load_checkpoint, prefix_of
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_config import read_config
from etude.learn.model.hf_keys import MissingTensors, match_keys
from etude.learn.model.settings import Impl
from etude.learn.model.transformers_backend.config import implementation_of
from etude.learn.model.transformers_backend.files import load_transformers
from etude.learn.weights.hf_files import INDEX, SINGLE, CheckpointError, tensor_files
from etude.learn.weights.quantized import Dequantizer

_ROWS = ("model.embed_tokens.weight", "lm_head.weight")  # one row a token id
# As safetensors names them.
WEIGHT_TYPES = ("F64", "F32", "BF16", "F16")


@dataclass(frozen=True)
class _Header:
    """What a file says of a tensor."""

    shape: tuple[int, ...]


def loadable(folder: Path, impl: Impl = "auto") -> str:
    """What it is, in words. Raises CheckpointError or UnsupportedConfig, naming what can't be loaded. Reads headers and no weights, but for a model
    that transformers computes: its class is called, and the words say which way it goes."""
    if implementation_of(folder, impl) == "transformers":
        model = load_transformers(folder)
        return f"{model.config.family} of transformers, {model.config.layers} layers, {model.config.context_length:,} positions; {model.way}"
    config = read_config(folder)
    summary = f"{config.family}, {config.layers} layers, {config.context_length:,} positions"
    if not (folder / INDEX).exists() and not (folder / SINGLE).exists():
        return f"{summary}; no weights are here"
    config = config.model_copy(update={"mtp_layers": 0})  # draft layers are loaded only where a stage asks for them
    check_size(config, folder)
    with torch.device("meta"):
        model = CausalLM(config)
    found: dict[str, _Header] = {}
    quantized = dequantizer_of(folder)
    for name, listed in tensor_files(folder).items():
        found |= _headers(folder / name, listed, prefix_of(folder), config, quantized)
    quantized.require_complete()
    match_keys(model.state_dict(), found, config)
    return f"{summary}; {len(found):,} tensors"


def describe_adapter(adapter: Path, base: Path) -> str:
    """What an adapter is, in words, after loading it on its base. Raises CheckpointError."""
    model = load_checkpoint(base)
    settings = put_adapter(model, adapter, base)
    kind = "DoRA" if settings.dora else "LoRA"
    return f"{kind} of rank {settings.rank}, alpha {settings.alpha:g}, on {len(adapted_modules(model)):,} modules of {base}"


def _headers(
    path: Path, listed: frozenset[str] | None, prefix: str, config: ModelConfig, quantized: Dequantizer
) -> dict[str, _Header]:
    """What a file holds of the model, by the keys of the language model."""
    found: dict[str, _Header] = {}
    try:
        with safe_open(path, framework="np") as file:
            keys = set(file.keys())
            named = keys if listed is None else listed
            for key in sorted(key for key in named if belongs(quantized.tensor_of(key), prefix, config)):
                if key not in keys:
                    raise MissingTensors(
                        f"{path} lacks {key}, which {INDEX} says is there; the checkpoint is incomplete"
                    )
                header = file.get_slice(key)
                if (whole := quantized.add_shape(key, header.get_shape())) is not None:
                    # What is read back is bf16; a tensor that is no part of another has to be a weight itself.
                    kind = "BF16" if quantized.is_part(key) else header.get_dtype()
                    found[whole[0].removeprefix(prefix)] = _checked(whole[0], path.name, kind, list(whole[1]), config)
    except SafetensorError as error:
        raise CheckpointError(f"{path} can't be read ({error}); the checkpoint is damaged") from error
    return found


def _checked(key: str, file: str, kind: str, shape: list[int], config: ModelConfig) -> _Header:
    if kind not in WEIGHT_TYPES:
        raise CheckpointError(
            f"{key} in {file} is {kind}: quantised weights can't be loaded; convert the checkpoint to bf16 or fp32 first"
        )
    if key.endswith(_ROWS) and shape and shape[0] != config.vocab_size:
        raise CheckpointError(
            f"{key} in {file} has {shape[0]:,} rows, and config.json says vocab_size {config.vocab_size:,}: they do not belong together"
        )
    return _Header(tuple(shape))
