"""Quantised weights are read back to what their publishers' own conversions give; parts that are missing or don't fit are named."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from etude.learn.model.checkpoint import load_checkpoint, loadable, save_checkpoint
from etude.learn.model.hf_config import UnsupportedConfig, read_config
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.hf_files import INDEX, CheckpointError
from etude.learn.weights.quantized import Dequantizer, scheme_of

FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 8]}
GROUP = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 8}
INT4 = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {"group_0": {"weights": GROUP}},
}
MXFP4 = {"quant_method": "mxfp4"}


def to_fp8(key: str, weight: Tensor) -> dict[str, Tensor]:
    """A weight in blocks of 16 rows and 8 columns, the last ones cut, and their scales."""
    rows, columns = (-(-size // block) for size, block in zip(weight.shape, (16, 8), strict=True))
    scale = torch.empty(rows, columns)
    low = torch.empty(weight.shape, dtype=torch.float8_e4m3fn)
    for r in range(rows):
        for c in range(columns):
            place = (slice(16 * r, 16 * r + 16), slice(8 * c, 8 * c + 8))
            scale[r, c] = weight[place].abs().max() / 448
            low[place] = (weight[place] / scale[r, c]).to(torch.float8_e4m3fn)
    return {key: low, key + "_scale_inv": scale}


def to_int4(key: str, weight: Tensor) -> dict[str, Tensor]:
    """Groups of 8 columns; eight numbers to an int32, the first in the lowest bits."""
    scale = (weight.unflatten(1, (-1, 8)).abs().amax(-1) / 7).bfloat16()
    numbers = (weight / scale.float().repeat_interleave(8, 1)).round().clamp(-8, 7).long() + 8
    packed = torch.zeros(weight.shape[0], weight.shape[1] // 8, dtype=torch.long)
    for place in range(8):
        packed |= numbers[:, place::8] << (4 * place)
    packed = torch.where(packed >= 1 << 31, packed - (1 << 32), packed).int()
    return {key + "_packed": packed, key + "_scale": scale, key + "_shape": torch.tensor(weight.shape)}


def value_of(parts: dict[str, Tensor], key: str) -> Tensor:
    """The weight, element by element."""
    if key + "_packed" in parts:
        packed, scale = parts[key + "_packed"], parts[key + "_scale"].float()
        rows, columns = (int(size) for size in parts[key + "_shape"])
        digits = [
            [((int(packed[r, c // 8]) & 0xFFFFFFFF) >> (4 * (c % 8)) & 15) - 8 for c in range(columns)]
            for r in range(rows)
        ]
        return torch.tensor([[digits[r][c] * scale[r, c // 8] for c in range(columns)] for r in range(rows)]).bfloat16()
    low, scale = parts[key].float(), parts[key + "_scale_inv"]
    return torch.stack(
        [torch.stack([low[r, c] * scale[r // 16, c // 8] for c in range(low.shape[1])]) for r in range(low.shape[0])]
    ).bfloat16()


@pytest.fixture(params=["fp8", "fp8 as MiniMax names it", "int4"])
def quantised(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Tensor]]:
    """A checkpoint whose experts are quantised, in two files with one part of a tensor in each, and the weights that they stand for."""
    settings, quantise = {
        "fp8": (FP8, to_fp8),
        "fp8 as MiniMax names it": (FP8 | {"fmt": "float8_e4m3fn"}, to_fp8),
        "int4": (INT4, to_int4),
    }[request.param]
    model = new_model(
        ModelSettings(hidden_size=24, layers=2, heads=2, experts=4, moe_intermediate=40, kv_lora_rank=8), 31
    )
    save_checkpoint(model, tmp_path / "c")
    return tmp_path / "c", rewrite(tmp_path / "c", settings, quantise)


def rewrite(
    folder: Path, settings: dict[str, Any], quantise: Callable[[str, Tensor], dict[str, Tensor]]
) -> dict[str, Tensor]:
    (file,) = folder.glob("*.safetensors")
    plain, parts, wanted = load_file(file), {}, {}
    for key, tensor in plain.items():
        made = quantise(key, tensor) if ".experts." in key else {key: tensor}
        parts |= made
        wanted[key] = value_of(made, key) if ".experts." in key else tensor
    halves = [dict(list(parts.items())[start::2]) for start in (0, 1)]
    names = ["a.safetensors", "b.safetensors"]
    for name, half in zip(names, halves, strict=True):
        save_file({key: tensor.contiguous() for key, tensor in half.items()}, folder / name)
    file.unlink()
    index = {key: name for name, half in zip(names, halves, strict=True) for key in half}
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    change(folder, quantization_config=settings)
    return wanted


def change(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def test_a_quantised_checkpoint_loads_as_the_weights_that_it_holds(
    quantised: tuple[Path, dict[str, Tensor]], tmp_path: Path
) -> None:
    folder, wanted = quantised
    assert "tensors" in loadable(folder)
    model = load_checkpoint(folder)
    save_checkpoint(model, tmp_path / "plain")
    (file,) = (tmp_path / "plain").glob("*.safetensors")
    found = load_file(file)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key].float()) for key in wanted)
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())


def test_no_second_copy_of_the_weights_is_held_while_they_load(
    quantised: tuple[Path, dict[str, Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[weakref.ref[Tensor]] = []
    held: list[int] = []
    whole = Dequantizer.add

    def add(self: Dequantizer, key: str, tensor: Tensor) -> tuple[str, Tensor] | None:
        held.append(sum(one() is not None for one in read))
        found = whole(self, key, tensor)
        read.extend([] if found is None else [weakref.ref(found[1])])
        return found

    monkeypatch.setattr(Dequantizer, "add", add)
    load_checkpoint(quantised[0])
    assert len(read) == len(quantised[1]) and max(held) == 0


def test_a_part_that_is_missing_is_named(quantised: tuple[Path, dict[str, Tensor]]) -> None:
    folder, _ = quantised
    index = json.loads((folder / INDEX).read_text())["weight_map"]
    gone = next(key for key in index if key.endswith(("_scale_inv", "_scale")))
    del index[gone]
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    for read in (load_checkpoint, loadable):
        with pytest.raises(
            CheckpointError, match=f"{gone} is missing|{gone.removesuffix('_scale_inv')}.* is F8_E4M3|is float8"
        ):
            read(folder)


def test_mxfp4_equals_transformers() -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    generator = torch.Generator().manual_seed(0)
    blocks = torch.randint(0, 256, (3, 10, 4, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(110, 140, (3, 10, 4), generator=generator, dtype=torch.uint8)
    reader = Dequantizer(scheme_of(MXFP4), {"w_blocks", "w_scales"})
    assert reader.add("w_blocks", blocks) is None
    name, ours = reader.add("w_scales", scales) or ("", torch.empty(0))
    assert name == "w" and torch.equal(ours, convert_moe_packed_tensors(blocks, scales))
    assert Dequantizer(scheme_of(MXFP4), {"w_blocks", "w_scales"}).add_shape("w_blocks", blocks.shape) is None
    reader.add_shape("w_blocks", blocks.shape)
    assert reader.add_shape("w_scales", scales.shape) == ("w", tuple(ours.shape))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"quant_method": "awq"}, "quantised by 'awq'; fp8, compressed-tensors, mxfp4 can be read"),
        ({"bits": 4}, "quantised by None"),
        (FP8 | {"weight_block_size": None}, "weight_block_size is None"),
        (FP8 | {"fmt": "e5m2"}, "fmt is 'e5m2'"),
        (INT4 | {"format": "marlin"}, "format 'marlin'"),
        (INT4 | {"config_groups": {"g": {"weights": GROUP | {"num_bits": 8}}}}, "symmetric 4-bit integers"),
        (INT4 | {"config_groups": {"g": {"weights": GROUP | {"group_size": 0}}}}, "group_size is 0"),
        ("fp8", "where an object belongs"),
    ],
    ids=str,
)
def test_what_is_not_read_is_refused_by_name(settings: Any, named: str) -> None:
    with pytest.raises(CheckpointError, match=named):
        scheme_of(settings)


def test_a_config_of_another_method_is_refused_before_weights_are_looked_at(tmp_path: Path) -> None:
    save_checkpoint(new_model(ModelSettings(hidden_size=24, layers=1, heads=2, experts=4), 31), tmp_path)
    change(tmp_path, quantization_config={"quant_method": "awq"})
    with pytest.raises(UnsupportedConfig, match="quantised by 'awq'"):
        read_config(tmp_path)


@pytest.mark.parametrize("shape", [(1, 1), (9, 9), (0, 3)])
def test_scales_of_another_shape_are_refused(shape: tuple[int, int]) -> None:
    reader = Dequantizer(scheme_of(FP8), {"x.weight", "x.weight_scale_inv"})
    reader.add("x.weight", torch.zeros(24, 20).to(torch.float8_e4m3fn))
    with pytest.raises(CheckpointError, match="x.weight can't be read back: a weight of .24, 20. has scales of"):
        reader.add("x.weight_scale_inv", torch.ones(shape))
