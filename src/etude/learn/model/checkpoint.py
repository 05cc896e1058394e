"""A checkpoint is a Hugging Face directory: what is saved here, transformers and vLLM load, and the other way round.

A save is complete: `checkpoint_files.py` writes what belongs to it besides config and weights. It is atomic: the directory is written next to
its place and renamed, so what is there is always whole. (Replacing an
existing one takes two renames; a kill exactly between them leaves it as `.NAME.PID.former`.)
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from etude.learn.model.adapter_files import put_adapter
from etude.learn.model.adapters import adapted_modules, fold_adapters, merged_state
from etude.learn.model.card import Training
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint_files import TOKEN_IDS, Companions
from etude.learn.model.checkpoint_tensors import (
    check_size,
    check_weight,
    model_tensors,
    prefix_of,
    read_tensors,
    stored_keys,
    tensor_headers,
)
from etude.learn.model.config import ModelConfig
from etude.learn.model.hf_config import (
    DRAFT_LAYERS,
    read_config,
    text_config,
    to_hf_config,
)
from etude.learn.model.hf_keys import fill, ignorable, layer_of, match_keys, to_hf
from etude.learn.model.settings import Impl
from etude.learn.model.transformers_backend.config import (
    TransformersConfig,
    implementation_of,
    read_transformers_config,
)
from etude.learn.model.transformers_backend.language_model import TransformersLM, load_transformers, write_weights
from etude.learn.weights.adapter_folder import adapted_checkpoint
from etude.learn.weights.hf_files import INDEX, SINGLE, CheckpointError, read_object

# The size other writers split at; readers hold one shard at a time.
SHARD_BYTES = 5 * 2**30
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def save_checkpoint(
    model: CausalLM,
    folder: Path | str,
    tokenizer_from: Path | str | None = None,
    extra_config: Mapping[str, Any] | None = None,
    drafts_from: Path | str | None = None,
    trained: Training | None = None,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Write `model` to `folder`, replacing what is there; adapters are merged.

    Tokenizer, chat template and generation configuration come from the directory
    `tokenizer_from`, and if that is a checkpoint, its TOKEN_IDS and its model card too; what it lacks is written.

    `extra_config` adds keys to config.json, such as `eos_token_id`. Draft layers of the checkpoint `drafts_from`, if it has any,
    are carried over to a trunk that was loaded without them. `trained` is added to the model card; `tokenizer` takes the place of that of
    `tokenizer_from`. Raises CheckpointError for a tokenizer with more tokens than the model has rows.
    """
    folder = Path(folder)
    config, tensors = _on_disk(model)
    config["dtype"] = str(model.embed.weight.dtype).removeprefix("torch.")
    if drafts_from is not None and not isinstance(model, TransformersLM):
        carried = draft_tensors(drafts_from, model.config)
        config[DRAFT_LAYERS] = load_config(drafts_from).mtp_layers
        tensors |= carried
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        config |= token_ids(tokenizer_from) | dict(extra_config or {})
        _write_json(draft / "config.json", config)
        source = None if tokenizer_from is None else Path(tokenizer_from)
        Companions(source, tokenizer, trained).write(
            draft, _with_sizes(config, model.config), model.config.context_length
        )
        _write_weights(model, draft, tensors)
        _replace(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _write_weights(model: CausalLM, folder: Path, tensors: dict[str, Tensor]) -> None:
    if isinstance(model, TransformersLM):
        write_weights(model, folder, tensors)
    else:
        _write_tensors(folder, tensors)


def check_companions(config: ModelConfig, tokenizer_from: Path | str) -> None:
    """Writes what a checkpoint of this model holds besides weights, and removes it: what can't be saved is found before training. Raises
    CheckpointError, ValueError or OSError."""
    with tempfile.TemporaryDirectory(prefix="etude-checkpoint-") as name:
        raw = _config_json(config) | token_ids(tokenizer_from)
        _write_json(Path(name) / "config.json", raw)
        Companions(Path(tokenizer_from)).write(Path(name), _with_sizes(raw, config), config.context_length)


def _on_disk(model: CausalLM) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The content of config.json, and the weights: by their names on disk, or those of a model of transformers by its own."""
    state = merged_state(model)
    named = state if isinstance(model, TransformersLM) else dict(to_hf(state, model.config))
    return _config_json(model.config), named


def _config_json(config: ModelConfig) -> dict[str, Any]:
    return dict(config.raw) if isinstance(config, TransformersConfig) else to_hf_config(config)


def _with_sizes(raw: Mapping[str, Any], config: ModelConfig) -> dict[str, Any]:
    """A config.json with the two sizes that tokenizer and card are written by, under the names that most families have for them."""
    return {"vocab_size": config.vocab_size, "max_position_embeddings": config.max_positions} | dict(raw)


def token_ids(folder: Path | str | None) -> dict[str, Any]:
    """The TOKEN_IDS of a checkpoint directory; empty if the folder is none."""
    path = None if folder is None else Path(folder) / "config.json"
    if path is None or not path.is_file():
        return {}
    raw = text_config(read_object(path))
    return {key: raw[key] for key in TOKEN_IDS if raw.get(key) is not None}


def load_config(folder: Path | str, impl: Impl = "auto") -> ModelConfig:
    """The model that a checkpoint directory holds. Raises CheckpointError or UnsupportedConfig."""
    if implementation_of(folder, impl) == "transformers":
        return read_transformers_config(folder)
    return read_config(folder)


def load_checkpoint(
    folder: Path | str,
    dtype: torch.dtype = torch.float32,
    drafts: bool = False,
    device: torch.device | str = "cpu",
    impl: Impl = "auto",
) -> CausalLM:
    """The model of a checkpoint directory, on `device`, its weights as `dtype`; the router's selection bias stays in fp32. Raises
    CheckpointError or UnsupportedConfig, naming what does not fit. `impl` says whose code computes it.

    Draft layers on disk are left unread, and the model has none, unless `drafts` asks for them. Where config.json counts some and the files hold no
    tensor of any, as transformers writes a checkpoint, there are none either, with a warning.

    A directory that joins an adapter with its base (`adapter_folder.join`) is loaded with the adapter merged into the weights, computed in fp32.
    """
    if (joined := adapted_checkpoint(folder)) is not None:
        model = load_checkpoint(joined.base, drafts=drafts, impl=impl)
        put_adapter(model, joined.adapter, joined.base)
        fold_adapters(model)
        return _in_range(model.to(dtype), dtype).to(device)
    if implementation_of(folder, impl) == "transformers":
        return load_transformers(folder, dtype, device)
    config = read_config(folder)
    absent = drafts and config.mtp_layers > 0 and not _holds_drafts(Path(folder), config)
    if absent:
        logging.getLogger(__name__).warning(
            "%s: config.json counts %d draft layers and the files hold none, so the model has none",
            folder,
            config.mtp_layers,
        )
    if absent or not drafts:
        config = config.model_copy(update={"mtp_layers": 0})
    check_size(config, folder)
    found = tensor_headers(folder, config)
    model = CausalLM(config).to(dtype)
    fill(model.state_dict(), found, model_tensors(folder, config), config)
    return _in_range(model, dtype).to(device)


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
    found = tensor_headers(folder, config)
    match_keys(model.state_dict(), found, config)
    return f"{summary}; {len(found):,} tensors"


def describe_adapter(adapter: Path, base: Path) -> str:
    """What an adapter is, in words, after loading it on its base. Raises CheckpointError."""
    model = load_checkpoint(base)
    settings = put_adapter(model, adapter, base)
    kind = "DoRA" if settings.dora else "LoRA"
    return f"{kind} of rank {settings.rank}, alpha {settings.alpha:g}, on {len(adapted_modules(model)):,} modules of {base}"


def _in_range(model: CausalLM, dtype: torch.dtype) -> CausalLM:
    """Raises CheckpointError for a weight that is too large for float16, which has a shorter range than the others."""
    if dtype == torch.float16:
        for name, tensor in model.state_dict().items():
            check_weight(f"{name} as float16", tensor)
    return model


def _holds_drafts(folder: Path, config: ModelConfig) -> bool:
    """Whether the files hold a tensor of a draft layer. Raises CheckpointError."""
    prefix = prefix_of(folder)
    return any((layer_of(key.removeprefix(prefix)) or 0) >= config.layers for key in stored_keys(folder))


def draft_tensors(folder: Path | str, trunk: ModelConfig) -> dict[str, Tensor]:
    """The draft layers of a checkpoint directory by their key on disk, empty if it has none, for another trunk of one shape.

    That trunk may have been stretched since: draft layers hold nothing of the rope. Raises CheckpointError if it already has draft
    layers, or another shape.
    """
    config = load_config(folder)
    if trunk.mtp_layers:
        raise CheckpointError(f"the model already has {trunk.mtp_layers} draft layers, those of {folder} have no place")
    stretch = {"mtp_layers": 0, "yarn": trunk.yarn, "max_positions": trunk.max_positions}
    if config.model_copy(update=stretch) != trunk:
        raise CheckpointError(f"the draft layers of {folder} belong to a model of another shape than the one saved")
    return read_tensors(folder, lambda key: (layer_of(key) or 0) >= config.layers and not ignorable(key, config))


def _write_tensors(folder: Path, tensors: dict[str, Tensor]) -> None:
    """Shards and their index, in the names every reader knows."""
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for key, tensor in tensors.items():
        if shards[-1] and filled + tensor.nbytes > SHARD_BYTES:
            shards.append({})
            filled = 0
        shards[-1][key] = tensor.detach().cpu().contiguous()
        filled += tensor.nbytes
    weight_map = {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})  # transformers refuses files without this mark
        weight_map |= {key: name for key in shard}
    total = sum(tensor.nbytes for tensor in tensors.values())
    _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _replace(draft: Path, folder: Path) -> None:
    """Rename `draft` to `folder`; a former one steps aside first, since a directory can't be renamed over a full one."""
    former = folder.with_name(f".{folder.name}.{os.getpid()}.former")
    if folder.exists():
        shutil.rmtree(former, ignore_errors=True)
        folder.rename(former)
    draft.rename(folder)
    shutil.rmtree(former, ignore_errors=True)
