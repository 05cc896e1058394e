"""Which tensor of a Hugging Face checkpoint is which parameter: one table, both ways, all families.

On disk every expert and every half of a fused matrix has its own key (the DeepSeek layout, which vLLM reads too). Fused
expert keys (`mlp.experts.gate_up_proj`), as some writers leave them, are read as well. What a family names otherwise is in its entry of
`families.py`; gpt-oss lays its experts out otherwise too (`TRANSPOSED`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from etude.learn.model.config import ModelConfig
from etude.learn.weights.hf_files import CheckpointError


class MissingTensors(CheckpointError):
    """Tensors the model needs are not in the files."""


class UnexpectedTensors(CheckpointError):
    """The files hold tensors the model has no place for."""


class WrongShape(CheckpointError):
    """A tensor has another shape than the model's."""


def _interleave(halves: Tensor) -> Tensor:
    """(E, 2I, ...) with the gate's rows before the up's to gate and up by turns."""
    return halves.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


def _separate(mixed: Tensor) -> Tensor:
    """The reverse of `_interleave`."""
    return mixed.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)


@dataclass(frozen=True)
class TensorLayout:
    """How one of our tensors is written under one key, and read back; each returns a copy or a view."""

    to_disk: Callable[[Tensor], Tensor]
    from_disk: Callable[[Tensor], Tensor]


# gpt-oss: experts' matrices transposed, gate and up by turns (GptOssExperts of transformers).
TRANSPOSED = {
    "feed.experts.gate_up": TensorLayout(
        lambda x: _interleave(x).transpose(1, 2), lambda x: _separate(x.transpose(1, 2))
    ),
    "feed.experts.gate_up_bias": TensorLayout(_interleave, _separate),
    "feed.experts.down": TensorLayout(lambda x: x.transpose(1, 2), lambda x: x.transpose(1, 2)),
}
TRANSPOSED_FAMILIES = ("gpt_oss",)


@dataclass(frozen=True)
class KeyPlace:
    """Where a parameter lies on disk: keys stacked row on row, once per expert (`{e}`) if it is 3-D. `fused` is its other name, `layout` its form if
    that is another than ours."""

    keys: tuple[str, ...]
    fused: str | None = None
    layout: TensorLayout | None = None

    @property
    def per_expert(self) -> bool:
        return "{e}" in self.keys[0]


TOP = {
    "embed.weight": KeyPlace(("model.embed_tokens.weight",)),
    "norm.weight": KeyPlace(("model.norm.weight",)),
    "head.weight": KeyPlace(("lm_head.weight",)),
}
# Within `mtp.D.` here and `model.layers.{layers + D}.` there; the layer's block is next to them, as any other.
DRAFT = {
    "enorm.weight": KeyPlace(("enorm.weight",)),
    "hnorm.weight": KeyPlace(("hnorm.weight",)),
    "eh_proj.weight": KeyPlace(("eh_proj.weight",)),
    "norm.weight": KeyPlace(("shared_head.norm.weight",)),
}
# Copies of the trunk's embedding and head that publishers put into a draft layer.
DRAFT_COPIES = ("embed_tokens.weight", "shared_head.head.weight")
# Within `blocks.N.` here and `model.layers.N.` there.
BLOCK = {
    "attention_norm.weight": KeyPlace(("input_layernorm.weight",)),
    "feed_norm.weight": KeyPlace(("post_attention_layernorm.weight",)),
    "attention.q.weight": KeyPlace(("self_attn.q_proj.weight",)),
    "attention.k.weight": KeyPlace(("self_attn.k_proj.weight",)),
    "attention.v.weight": KeyPlace(("self_attn.v_proj.weight",)),
    "attention.q.bias": KeyPlace(("self_attn.q_proj.bias",)),
    "attention.k.bias": KeyPlace(("self_attn.k_proj.bias",)),
    "attention.v.bias": KeyPlace(("self_attn.v_proj.bias",)),
    "attention.gate.weight": KeyPlace(("self_attn.g_proj.weight",)),
    "attention.sinks": KeyPlace(("self_attn.sinks",)),
    "attention.q_norm.weight": KeyPlace(("self_attn.q_norm.weight",)),
    "attention.k_norm.weight": KeyPlace(("self_attn.k_norm.weight",)),
    "attention.q_a.weight": KeyPlace(("self_attn.q_a_proj.weight",)),
    "attention.q_a_norm.weight": KeyPlace(("self_attn.q_a_layernorm.weight",)),
    "attention.q_b.weight": KeyPlace(("self_attn.q_b_proj.weight",)),
    "attention.kv_a.weight": KeyPlace(("self_attn.kv_a_proj_with_mqa.weight",)),
    "attention.kv_a_norm.weight": KeyPlace(("self_attn.kv_a_layernorm.weight",)),
    "attention.kv_b.weight": KeyPlace(("self_attn.kv_b_proj.weight",)),
    "attention.out.weight": KeyPlace(("self_attn.o_proj.weight",)),
    "attention.out.bias": KeyPlace(("self_attn.o_proj.bias",)),
    "feed.gate_up.bias": KeyPlace(("mlp.gate_proj.bias", "mlp.up_proj.bias")),
    "feed.down.bias": KeyPlace(("mlp.down_proj.bias",)),
    "feed.gate_up.weight": KeyPlace(("mlp.gate_proj.weight", "mlp.up_proj.weight")),
    "feed.down.weight": KeyPlace(("mlp.down_proj.weight",)),
    "feed.shared.gate_up.weight": KeyPlace(
        ("mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight")
    ),
    "feed.shared.down.weight": KeyPlace(("mlp.shared_experts.down_proj.weight",)),
    "feed.shared_gate.weight": KeyPlace(("mlp.shared_expert_gate.weight",)),
    "feed.router.weight": KeyPlace(("mlp.gate.weight",)),
    "feed.router.bias": KeyPlace(("mlp.gate.e_score_correction_bias",)),
    "feed.experts.gate_up": KeyPlace(
        ("mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight"), "mlp.experts.gate_up_proj"
    ),
    "feed.experts.down": KeyPlace(("mlp.experts.{e}.down_proj.weight",), "mlp.experts.down_proj"),
    "feed.experts.gate_up_bias": KeyPlace(("mlp.experts.gate_up_proj_bias",)),
    "feed.experts.down_bias": KeyPlace(("mlp.experts.down_proj_bias",)),
}


def place_of(name: str, config: ModelConfig) -> tuple[str, KeyPlace]:
    """The prefix of a parameter's keys on disk, and its place behind it, in a model of this configuration."""
    if name in TOP:
        return "", TOP[name]
    kind, number, rest = name.split(".", 2)
    if kind == "blocks":
        return f"model.layers.{number}.", _within_block(rest, config)
    prefix = f"model.layers.{config.layers + int(number)}."
    return prefix, DRAFT[rest] if rest in DRAFT else _within_block(rest.removeprefix("block."), config)


def _within_block(name: str, config: ModelConfig) -> KeyPlace:
    keys = config.of_family.tensors.get(name)
    if config.family in TRANSPOSED_FAMILIES and name in TRANSPOSED:
        fused = BLOCK[name].fused or BLOCK[name].keys[0]
        return KeyPlace((fused,), layout=TRANSPOSED[name])
    return BLOCK[name] if keys is None else KeyPlace(keys)


def keys_of(name: str, shape: torch.Size, config: ModelConfig) -> list[str]:
    """Every key that one of our tensors is written under, in the order of its rows."""
    prefix, place = place_of(name, config)
    if not place.per_expert:
        return [prefix + key for key in place.keys]
    return [prefix + key.format(e=e) for e in range(shape[0]) for key in place.keys]


def to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> Iterator[tuple[str, Tensor]]:
    """Our state dict as (key, tensor) pairs of the Hugging Face layout; tensors are views but where the layout is another one."""
    for name, tensor in state.items():
        keys, place = keys_of(name, tensor.shape, config), place_of(name, config)[1]
        if place.layout is not None:
            yield keys[0], place.layout.to_disk(tensor)
            continue
        rows = tensor.flatten(0, 1) if place.per_expert else tensor  # experts' rows under one another
        yield from zip(keys, rows.chunk(len(keys)), strict=True)


class HasShape(Protocol):
    """A tensor, or what a file's header says of one."""

    @property
    def shape(self) -> Sequence[int]: ...


def from_hf(own: Mapping[str, Tensor], found: Mapping[str, Tensor], config: ModelConfig) -> None:
    """Fill our tensors in place from `found`. Raises before any is written if keys or shapes do not match."""
    fill(own, found, found.items(), config)


@torch.no_grad()
def fill(
    own: Mapping[str, Tensor],
    shapes: Mapping[str, HasShape],
    tensors: Iterable[tuple[str, Tensor]],
    config: ModelConfig,
) -> None:
    """The same from tensors that come one after the other, of which `shapes` says beforehand what they are; none is held after it was copied."""
    places: dict[str, tuple[Tensor, TensorLayout | None]] = {}
    for name, keys in match_keys(own, shapes, config).items():
        layout = place_of(name, config)[1].layout
        if layout is not None:
            places[keys[0]] = own[name], layout
            continue
        places |= {key: (rows, None) for key, rows in _rows(own[name], keys, _per_expert(name, keys, config))}
    for key, tensor in tensors:
        rows, layout = places[key]
        rows.copy_(tensor if layout is None else layout.from_disk(tensor))
        del tensor


def match_keys(own: Mapping[str, Tensor], found: Mapping[str, HasShape], config: ModelConfig) -> dict[str, list[str]]:
    """For each of our tensors the keys in `found` that fill it. Raises MissingTensors, UnexpectedTensors or WrongShape."""
    sources = {name: _source(name, tensor.shape, config, found) for name, tensor in own.items()}
    missing = [key for keys in sources.values() for key in keys if key not in found]
    if missing:
        raise MissingTensors(
            f"{_some(missing)} missing from the checkpoint; it is incomplete or of another architecture"
        )
    used = {key for keys in sources.values() for key in keys}
    unexpected = [key for key in found if key not in used]
    if unexpected:
        raise UnexpectedTensors(f"{_some(unexpected)} not part of the model that config.json describes")
    for name, keys in sources.items():
        layout = place_of(name, config)[1].layout
        wanted = own[name] if layout is None else layout.to_disk(own[name])
        _check_shapes(wanted, keys, found, _per_expert(name, keys, config))
    return sources


def _per_expert(name: str, keys: list[str], config: ModelConfig) -> bool:
    """Whether these keys hold an expert's matrix each, rather than all of them in one fused tensor."""
    prefix, place = place_of(name, config)
    return place.per_expert and (place.fused is None or keys != [prefix + place.fused])


def _source(name: str, shape: torch.Size, config: ModelConfig, found: Collection[str]) -> list[str]:
    prefix, place = place_of(name, config)
    fused = None if place.fused is None else prefix + place.fused
    return [fused] if fused is not None and fused in found else keys_of(name, shape, config)


def _rows(own: Tensor, keys: list[str], per_expert: bool) -> Iterator[tuple[str, Tensor]]:
    """The part of our tensor that each key fills."""
    rows = own.flatten(0, 1) if per_expert else own
    return zip(keys, rows.chunk(len(keys)), strict=True)


def _check_shapes(own: Tensor, keys: list[str], found: Mapping[str, HasShape], per_expert: bool) -> None:
    for key, rows in _rows(own, keys, per_expert):
        if tuple(found[key].shape) != tuple(rows.shape):
            raise WrongShape(
                f"{key} is {tuple(found[key].shape)} in the checkpoint, the model needs {tuple(rows.shape)}"
            )


def _some(keys: list[str]) -> str:
    """Up to three names and how many there are."""
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return f"{', '.join(keys[:3])}{more} {'is' if len(keys) == 1 else 'are'}"


def layer_of(key: str) -> int | None:
    """The layer that a key on disk belongs to; None outside of layers."""
    match = re.match(r"model\.layers\.(\d+)\.", key)
    return None if match is None else int(match[1])


def ignorable(key: str, config: ModelConfig) -> bool:
    """Tensors of a checkpoint that a model has no use for: rope tables, layers past its last one, copies of embedding and head in its draft
    layers, and a tied head, which is a copy of the embedding.
    """
    layer = layer_of(key)
    past = layer is not None and layer >= config.layers + config.mtp_layers
    copied = layer is not None and layer >= config.layers and key.endswith(DRAFT_COPIES)
    return key.endswith("rotary_emb.inv_freq") or past or copied or (config.tied and key == "lm_head.weight")
