"""Adapters on disk in PEFT's format: `adapter_config.json` and `adapter_model.safetensors`, which PEFT, transformers and vLLM read.

The file of tensors also holds a digest of the base's weights, so that an adapter is never put on another base. A directory that PEFT wrote
has none, and only its shapes are checked. An option of PEFT that changes the result and is not supported is refused by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import pad

from etude.learn.model.adapters import (
    EXPERT_WEIGHTS,
    LoraExperts,
    LoraLinear,
    adaptable,
    adapted_modules,
    add_adapters,
    base_digest,
    hf_modules,
)
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.hf_keys import place_of
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.weights.adapter_folder import CONFIG, TENSORS, BaseError, adapted_checkpoint
from etude.learn.weights.hf_files import CheckpointError, read_object

DIGEST = "base_digest"  # in the metadata of TENSORS
PREFIX = "base_model.model."
RANKS, ALPHAS = "rank_pattern", "alpha_pattern"  # by name of a module
PLAIN_NAME = re.compile(r"\w+(\.\w+)*", re.ASCII)
INNER, OUTER = "gate_up_proj", "down_proj"  # the stacks of experts, in the order in which PEFT wraps them
STACKS = {"gate_up": f"mlp.experts.{INNER}", "down": f"mlp.experts.{OUTER}"}
# The options of PEFT that are read, and those that describe how the adapter was trained and change nothing after it.
READ = frozenset(
    ("peft_type", "task_type", "base_model_name_or_path", "r", "lora_alpha", "use_dora", "use_rslora", "target_modules", "target_parameters",
     "rank_pattern", "alpha_pattern")
)  # fmt: skip
WITHOUT_EFFECT = frozenset(
    ("auto_mapping", "peft_version", "inference_mode", "lora_dropout", "revision", "exclude_modules", "layers_pattern",
     "layers_to_transform", "megatron_config", "megatron_core", "qalora_group_size", "ensure_weight_tying", "runtime_config", "loftq_config")
)  # fmt: skip
# PEFT's ways to begin that leave the base as it is. The others (PiSSA, OLoRA, CorDA, LoftQ) also change the weights of the base.
INIT, INIT_LEAVES_BASE = "init_lora_weights", (None, True, False, "gaussian", "eva", "orthogonal")
# What every other option has to be for the result to be plain LoRA or DoRA.
NEUTRAL = (None, False, "none", {}, [])


def read_adapter_settings(folder: Path) -> LoraSettings:
    """The adapter's settings, its targets left aside; where modules have ranks of their own the largest.
    Raises CheckpointError for an option that is not supported."""
    raw = read_object(folder / CONFIG)
    if raw.get("peft_type") != "LORA":
        raise CheckpointError(f"{folder / CONFIG} has peft_type {raw.get('peft_type')!r}; only LORA is supported")
    if raw.get(INIT) not in INIT_LEAVES_BASE:
        raise CheckpointError(
            f"{folder / CONFIG} sets {INIT} to {raw[INIT]!r}, which changed the base before training: the adapter does not fit the published base. "
            "Save it with PEFT's path_initial_model_for_weight_conversion, which writes a plain adapter"
        )
    for key, value in raw.items():
        if key not in READ | WITHOUT_EFFECT | {INIT} and value not in NEUTRAL:
            raise CheckpointError(
                f"{folder / CONFIG} sets {key} to {value!r}, which is not supported; train the adapter without it"
            )
    ranks = _pattern(raw, RANKS, folder)
    _pattern(raw, ALPHAS, folder)
    try:
        return LoraSettings(
            rank=max([raw.get("r", 8), *ranks.values()]),
            alpha=raw.get("lora_alpha", 8),
            rslora=raw.get("use_rslora") or False,
            dora=raw.get("use_dora") or False,
        )
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{folder / CONFIG} is no configuration of an adapter: {error}") from error


def save_adapter(model: CausalLM, settings: LoraSettings, folder: Path, base: Path | str) -> None:
    """Write the adapters of `model`, which were added with `settings`, to `folder`; `base` is the checkpoint that they belong to;
    where that joins an adapter with its base, the file names the adapter."""
    joined = adapted_checkpoint(base)
    folder.mkdir(parents=True, exist_ok=True)
    modules = adapted_modules(model)
    linears = [name for name, module in modules.items() if isinstance(module, LoraLinear)]
    targets = sorted({key.rpartition(".")[2] for name in linears for key in hf_modules(name, model)})
    stacks = sorted(
        {
            _fused(name, stack, model).split(".", 3)[3]
            for name in modules
            if name not in linears
            for stack in EXPERT_WEIGHTS
        }
    )
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base if joined is None else joined.adapter), "r": settings.rank,
        "lora_alpha": settings.alpha, "use_dora": settings.dora, "use_rslora": settings.rslora, "target_modules": targets,
        "target_parameters": stacks or None, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False, "inference_mode": True,
        "init_lora_weights": True, "modules_to_save": None,
    }  # fmt: skip
    tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in to_peft(model).items()}
    save_file(tensors, folder / TENSORS, metadata={"format": "pt", DIGEST: base_digest(model)})
    (folder / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def put_adapter(model: CausalLM, folder: Path, base: Path) -> LoraSettings:
    """Put the adapter of `folder` next to the weights of `model`, which is the trunk of `base` in fp32; its settings.

    Raises CheckpointError for an adapter that is damaged or of a kind that is not supported, and BaseError for one of another base.
    """
    settings = read_adapter_settings(folder)
    metadata, found = _read_tensors(folder)
    expected = metadata.get(DIGEST)
    if expected is not None and expected != base_digest(model):
        raise BaseError(folder, f"the adapter {folder} was trained on another base than {base}")
    apply_adapter(model, settings, _plain_tensors(found, settings, folder), str(folder))
    return settings


def _plain_tensors(found: dict[str, Tensor], settings: LoraSettings, folder: Path) -> dict[str, Tensor]:
    """The tensors of an adapter as PEFT writes them where all modules have one rank and scale, and both stacks of experts an adapter."""
    raw = read_object(folder / CONFIG)
    targets = {str(name).rpartition(".")[2] for name in raw.get("target_parameters") or []}
    if INNER in targets and OUTER not in targets:  # without an adapter on the outer stack, PEFT wraps once
        found = {key.replace(".experts.lora_", ".experts.base_layer.lora_"): tensor for key, tensor in found.items()}
    ranks, alphas = _pattern(raw, RANKS, folder), _pattern(raw, ALPHAS, folder)
    if not ranks and not alphas:
        return found
    return {
        key: _levelled(key, tensor, settings, raw | {RANKS: ranks, ALPHAS: alphas}) for key, tensor in found.items()
    }


def _levelled(key: str, tensor: Tensor, settings: LoraSettings, raw: Mapping[str, Any]) -> Tensor:
    """One tensor of a module with a rank and alpha of its own, as one of the rank and scale of `settings`: further rows of A and columns of B are
    zeros, and B is multiplied by the quotient of the scales. Their product, the change of the weight, stays the same."""
    module, _, part = key.removeprefix(PREFIX).rpartition(".lora_")
    if part not in ("A.weight", "B.weight"):
        return tensor
    if ".experts" in module:
        raise CheckpointError(
            f"{key}: {RANKS} and {ALPHAS} are not read for stacks of experts; train the adapter without them"
        )
    rank = _matching(raw[RANKS], module, raw.get("r", 8))
    if tensor.shape[0 if part[0] == "A" else 1] != rank:
        raise CheckpointError(
            f"{key} is {tuple(tensor.shape)}, and {RANKS} gives it the rank {rank}: the adapter is damaged"
        )
    if part[0] == "A":
        return pad(tensor, (0, 0, 0, settings.rank - rank))
    own = settings.model_copy(update={"rank": rank, "alpha": _matching(raw[ALPHAS], module, settings.alpha)})
    return pad(tensor * (own.scale / settings.scale), (0, settings.rank - rank))


def _matching(pattern: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of the first name that is the module's or its end, as PEFT chooses."""
    return next((value for name, value in pattern.items() if f".{module}".endswith(f".{name}")), default)


def _pattern(raw: Mapping[str, Any], option: str, folder: Path) -> dict[str, Any]:
    """Ranks or alphas by module. Raises CheckpointError for names that are regular expressions, which foreign files are not trusted with, and for
    values that are no numbers above 0."""
    found = raw.get(option) or {}
    kinds = int if option == RANKS else int | float
    for name, value in found.items() if isinstance(found, dict) else [(found, None)]:
        if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name):
            raise CheckpointError(
                f"{folder / CONFIG} sets {option} to {found!r:.200}; only plain names of modules are read, such as q_proj or layers.0.mlp.up_proj"
            )
        if not isinstance(value, kinds) or isinstance(value, bool) or value <= 0:
            raise CheckpointError(
                f"{folder / CONFIG} sets {option} of {name} to {value!r:.100}; give it a number above 0"
            )
    return found


def apply_adapter(model: CausalLM, settings: LoraSettings, found: Mapping[str, Tensor], origin: str) -> None:
    """Add adapters where `found`, the tensors by PEFT's keys, has some, and fill them. Raises CheckpointError."""
    names = [name for name, _ in adaptable(model) if any(key in found for key in _keys(name, model).values())]
    for name in names:
        _require_whole(_keys(name, model), settings, found, origin)
    add_adapters(model, settings, names)
    unused = set(found)
    for key, tensor in to_peft(model).items():
        given = found.get(key)
        if given is None:  # one half of a fused matrix may have an adapter alone: then the other's B stays 0
            continue
        if tuple(given.shape) != tuple(tensor.shape):
            raise CheckpointError(
                f"{key} is {tuple(given.shape)} in {origin}, the base and the rank need {tuple(tensor.shape)}"
            )
        unused.discard(key)
    if unused:
        raise CheckpointError(f"{origin} holds {sorted(unused)[0]}, for which this base has no place")
    _fill(model, found)


def _require_whole(
    keys: Mapping[tuple[str, str], str], settings: LoraSettings, found: Mapping[str, Tensor], origin: str
) -> None:
    """Raises CheckpointError for a part of a module, by its `_keys`, of which `found` holds some tensors and lacks others."""
    for part in {part for part, _ in keys}:
        sides = {side: key for (of, side), key in keys.items() if of == part and (side != "m" or settings.dora)}
        there = [key for key in sides.values() if key in found]
        lost = [key for key in sides.values() if key not in found]
        if there and lost:
            raise CheckpointError(f"{origin} holds {there[0]} and lacks {lost[0]}: the adapter is incomplete")


def to_peft(model: CausalLM) -> dict[str, Tensor]:
    """The adapters of a model by PEFT's keys, in PEFT's shapes."""
    tensors: dict[str, Tensor] = {}
    for name, module in adapted_modules(model).items():
        keys = _keys(name, model)
        if isinstance(module, LoraExperts):
            for stack in EXPERT_WEIGHTS:
                a, b = getattr(module, f"lora_{stack}_a"), getattr(module, f"lora_{stack}_b")
                tensors[keys[stack, "a"]] = a.flatten(0, 1)  # (E * rank, in)
                tensors[keys[stack, "b"]] = b.permute(1, 2, 0).flatten(1)  # (out, rank * E)
            continue
        for block, part in enumerate(hf_modules(name, model)):
            tensors[keys[part, "a"]], tensors[keys[part, "b"]] = module.lora_a[block], module.lora_b[block]
            if module.lora_magnitude is not None:
                tensors[keys[part, "m"]] = module.lora_magnitude.chunk(len(module.lora_a))[block]
    return tensors


@torch.no_grad()
def _fill(model: CausalLM, found: Mapping[str, Tensor]) -> None:
    """Copy tensors in PEFT's shapes into the adapters."""
    for name, module in adapted_modules(model).items():
        keys = _keys(name, model)
        if isinstance(module, LoraExperts):
            for stack in EXPERT_WEIGHTS:
                a, b = getattr(module, f"lora_{stack}_a"), getattr(module, f"lora_{stack}_b")
                if keys[stack, "a"] in found and keys[stack, "b"] in found:
                    a.copy_(found[keys[stack, "a"]].view_as(a))
                    b.copy_(found[keys[stack, "b"]].unflatten(1, (-1, b.shape[0])).permute(2, 0, 1))
            continue
        for block, part in enumerate(hf_modules(name, model)):
            if keys[part, "a"] in found and keys[part, "b"] in found:
                module.lora_a[block].copy_(found[keys[part, "a"]])
                module.lora_b[block].copy_(found[keys[part, "b"]])
            if module.lora_magnitude is not None and keys[part, "m"] in found:
                module.lora_magnitude.chunk(len(module.lora_a))[block].copy_(found[keys[part, "m"]])


def _keys(name: str, model: CausalLM) -> dict[tuple[str, str], str]:
    """PEFT's keys of a module by (part, a or b or m). PEFT wraps stacks one in another: the one that a model has first is the inner one."""
    if name.endswith(".experts"):
        owner = PREFIX + _fused(name, "gate_up", model).rpartition(".")[0]
        inside = {"gate_up": f"{owner}.base_layer", "down": owner}
        return {(s, side.lower()): f"{inside[s]}.lora_{side}.weight" for s in EXPERT_WEIGHTS for side in "AB"}
    keys: dict[tuple[str, str], str] = {}
    for part in hf_modules(name, model):
        keys |= {(part, side.lower()): f"{PREFIX}{part}.lora_{side}.weight" for side in "AB"}
        keys[part, "m"] = f"{PREFIX}{part}.lora_magnitude_vector"
    return keys


def _fused(name: str, stack: str, model: CausalLM) -> str:
    """The stack of experts in transformers' class: every family whose experts take adapters names it alike there, however its files do."""
    prefix, _ = place_of(f"{name}.{stack}", model.config)
    return prefix + STACKS[stack]


def _read_tensors(folder: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with safe_open(folder / TENSORS, framework="pt") as file:
            return file.metadata() or {}, {key: file.get_tensor(key) for key in file.keys()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{folder / TENSORS} can't be read ({error}); the adapter is damaged or incomplete"
        ) from error
