"""Quantised weights of published checkpoints, read back to bf16 while a checkpoint is loaded: tensor after tensor, as their parts arrive.

- `fp8` (DeepSeek-V3): `X.weight` in e4m3 and `X.weight_scale_inv`, a factor for each block of `weight_block_size`.
- `compressed-tensors`, `pack-quantized` (Kimi K2.5): `X.weight_packed`, eight 4-bit numbers in an int32, the first in the lowest bits, each 8 too
  high; `X.weight_scale`, a factor for each group of a row; `X.weight_shape`.
- `mxfp4` (gpt-oss): `X_blocks`, two e2m1 numbers in a byte, the first in the low half, sixteen bytes a block; `X_scales`, an exponent of two for each
  block, 127 too high. The matrix is the transpose of the blocks' rows, as GptOssForCausalLM holds it.

The publishers' own conversions give bf16 too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from etude.learn.weights.hf_files import CheckpointError

Shape = Sequence[int]
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class QuantScheme:
    """How one tensor lies on disk: its parts are `name + suffix`, and the tensor is `name + target`. `marker` is a part that plain tensors lack."""

    target: str
    suffixes: tuple[str, ...]
    marker: str
    dequantize: Callable[[Mapping[str, Tensor]], Tensor]  # parts by suffix
    shape: Callable[[Mapping[str, Shape]], tuple[int, ...]]  # of parts by suffix


def scheme_of(settings: Any) -> QuantScheme | None:
    """How the weights of a checkpoint with this `quantization_config` are read; None without one. Raises CheckpointError naming what is not read."""
    if not settings:
        return None
    if not isinstance(settings, Mapping):
        raise CheckpointError(f"quantization_config is {settings!r:.60}, where an object belongs")
    method = settings.get("quant_method")
    if method not in _SCHEMES:
        raise CheckpointError(
            f"quantization_config: weights are quantised by {method!r:.40}; {', '.join(_SCHEMES)} can be read: convert the checkpoint to bf16 first"
        )
    return _SCHEMES[method](settings)


def _fp8(settings: Mapping[str, Any]) -> QuantScheme:
    block = settings.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(type(size) is int and size > 0 for size in block)):
        raise CheckpointError(
            f"quantization_config: weight_block_size is {block!r:.40}; two numbers of rows and columns are read"
        )
    if settings.get("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):  # MiniMax writes the second
        raise CheckpointError(f"quantization_config: fmt is {settings['fmt']!r:.40}; only 'e4m3' is read")

    def dequantize(parts: Mapping[str, Tensor]) -> Tensor:
        weight, scale = parts[".weight"].float(), parts[".weight_scale_inv"].float()
        wide = scale.repeat_interleave(block[0], 0).repeat_interleave(block[1], 1)
        if any(
            have < need or have - need >= size for have, need, size in zip(wide.shape, weight.shape, block, strict=True)
        ):
            raise CheckpointError(
                f"a weight of {tuple(weight.shape)} has scales of {tuple(scale.shape)} for blocks of {block}"
            )
        return (weight * wide[: weight.shape[0], : weight.shape[1]]).bfloat16()

    suffixes = (".weight", ".weight_scale_inv")
    return QuantScheme(".weight", suffixes, suffixes[1], dequantize, lambda shapes: tuple(shapes[".weight"]))


def _packed_int4(settings: Mapping[str, Any]) -> QuantScheme:
    groups = settings.get("config_groups")
    weights = [group.get("weights") or {} for group in groups.values()] if isinstance(groups, Mapping) else []
    needed = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    if (
        settings.get("format") != "pack-quantized"
        or len(weights) != 1
        or any(weights[0].get(k) != v for k, v in needed.items())
    ):
        raise CheckpointError(
            f"quantization_config: compressed-tensors of format {settings.get('format')!r:.40}; only 'pack-quantized' with one group of symmetric "
            "4-bit integers, scaled by groups, is read"
        )
    size = weights[0].get("group_size")
    if type(size) is not int or size < 1:
        raise CheckpointError(f"quantization_config: group_size is {size!r:.40}; a number of columns is read")

    def dequantize(parts: Mapping[str, Tensor]) -> Tensor:
        packed, scale = parts[".weight_packed"], parts[".weight_scale"].float()
        rows, columns = (int(n) for n in parts[".weight_shape"])
        if packed.dtype != torch.int32 or packed.shape[0] != rows or not 0 < columns <= packed.shape[1] * 8:
            raise CheckpointError(f"packed numbers {tuple(packed.shape)} do not hold a weight of {rows} x {columns}")
        numbers = (packed.unsqueeze(-1) >> torch.arange(0, 32, 4)) & 15  # (rows, packed columns, 8)
        values = numbers.flatten(1)[:, :columns].float() - 8
        wide = scale.repeat_interleave(size, 1)
        if wide.shape[0] != rows or wide.shape[1] < columns:
            raise CheckpointError(
                f"a weight of {rows} x {columns} has scales of {tuple(scale.shape)} for groups of {size}"
            )
        return (values * wide[:, :columns]).bfloat16()

    def shape(shapes: Mapping[str, Shape]) -> tuple[int, ...]:
        rows, columns = shapes[".weight_packed"]
        return rows, columns * 8

    suffixes = (".weight_packed", ".weight_scale", ".weight_shape")
    return QuantScheme(".weight", suffixes, suffixes[0], dequantize, shape)


def _mxfp4(settings: Mapping[str, Any]) -> QuantScheme:
    def dequantize(parts: Mapping[str, Tensor]) -> Tensor:
        blocks, scales = parts["_blocks"], parts["_scales"]
        if blocks.dtype != torch.uint8 or scales.dtype != torch.uint8 or blocks.shape[:-1] != scales.shape:
            raise CheckpointError(f"blocks of {tuple(blocks.shape)} have scales of {tuple(scales.shape)}")
        table = torch.tensor([*_E2M1, *(-value for value in _E2M1)])
        numbers = torch.stack((blocks & 15, blocks >> 4), -1).flatten(-2).long()  # (..., 32)
        values = table[numbers] * torch.exp2(scales.float() - 127).unsqueeze(-1)
        return values.flatten(-2).bfloat16().transpose(-1, -2).contiguous()

    def shape(shapes: Mapping[str, Shape]) -> tuple[int, ...]:
        *outer, rows, groups, width = shapes["_blocks"]
        return *outer, groups * width * 2, rows

    return QuantScheme("", ("_blocks", "_scales"), "_blocks", dequantize, shape)


_SCHEMES: dict[str, Callable[[Mapping[str, Any]], QuantScheme]] = {
    "fp8": _fp8,
    "compressed-tensors": _packed_int4,
    "mxfp4": _mxfp4,
}


@dataclass
class Dequantizer:
    """Puts tensors together from the parts of a checkpoint whose files hold `keys`. Without a scheme every key is a tensor."""

    scheme: QuantScheme | None
    keys: Collection[str]
    _parts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def tensor_of(self, key: str) -> str:
        """The tensor that a key is, or is a part of."""
        place = self._place(key)
        return key if place is None else place[0] + self.scheme.target  # type: ignore[union-attr]

    def is_part(self, key: str) -> bool:
        """Whether a key is a part of a quantised tensor."""
        return self._place(key) is not None

    def add(self, key: str, tensor: Tensor) -> tuple[str, Tensor] | None:
        """The tensor that is complete with this key; None while parts are missing. Raises CheckpointError for parts that don't fit."""
        return self._collect(key, tensor, lambda scheme, parts: scheme.dequantize(parts))

    def add_shape(self, key: str, shape: Shape) -> tuple[str, Shape] | None:
        """The same of shapes, as headers name them."""
        return self._collect(key, shape, lambda scheme, parts: scheme.shape(parts))

    def require_complete(self) -> None:
        """Raises CheckpointError for a tensor of which a part is missing."""
        for name, parts in self._parts.items():
            lacking = [suffix for suffix in self.scheme.suffixes if suffix not in parts] if self.scheme else []
            raise CheckpointError(f"{name}{lacking[0]} is missing from the checkpoint; its weight can't be read back")

    def _collect(self, key: str, value: Any, put_together: Callable[[QuantScheme, dict[str, Any]], Any]) -> Any:
        place = self._place(key)
        if place is None or self.scheme is None:
            return key, value
        name, suffix = place
        parts = self._parts.setdefault(name, {})
        parts[suffix] = value
        if len(parts) < len(self.scheme.suffixes):
            return None
        del self._parts[name]
        try:
            return name + self.scheme.target, put_together(self.scheme, parts)
        except (CheckpointError, ValueError, RuntimeError, IndexError) as error:  # of torch: shapes that don't fit
            raise CheckpointError(f"{name}{self.scheme.target} can't be read back: {error}") from error

    def _place(self, key: str) -> tuple[str, str] | None:
        """A part's tensor without its ending, and the part; None for a tensor that is not quantised."""
        if self.scheme is None:
            return None
        for suffix in sorted(self.scheme.suffixes, key=len, reverse=True):
            name = key.removesuffix(suffix)
            if name != key and name + self.scheme.marker in self.keys:
                return name, suffix
        return None
