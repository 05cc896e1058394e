"""Adapters: the base stays, A and B alone train, and merging, files and PEFT's formulas give the same model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from family_lab import transformers_model
from safetensors.torch import load_file, save_file

from etude.learn.model.adapter_files import put_adapter, read_adapter_settings, save_adapter, to_peft
from etude.learn.model.adapters import (
    adaptable,
    adapters_off,
    add_adapters,
    fold_adapters,
    has_adapters,
    is_adapter_tensor,
    merged_state,
    trained_state,
)
from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.experts import Experts
from etude.learn.model.families import FAMILIES
from etude.learn.model.init import new_model
from etude.learn.model.lora_settings import ATTENTION, DENSE, EXPERTS, LoraSettings
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.hf_files import CheckpointError

EVERYWHERE = [ATTENTION, DENSE, EXPERTS]


def adapted(model: CausalLM, **settings) -> LoraSettings:
    """Gives the model adapters that change it."""
    lora = LoraSettings(rank=4, alpha=8, **settings)
    add_adapters(model, lora)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if is_adapter_tensor(name):
                tensor.add_(torch.empty(tensor.shape).normal_(0, 0.1, generator=generator))
    return lora


def tiny_llama() -> CausalLM:
    sizes = dict(hidden_size=48, layers=2, heads=4, kv_heads=2, head_dim=12, dense_intermediate=40, max_positions=256)
    return new_model(ModelSettings.model_validate({"family": "llama", "init_head_std": 0.3, **sizes}), 97)


@pytest.mark.parametrize("settings", [{"targets": EVERYWHERE}, {"dora": True}, {"rslora": True}])
def test_new_adapters_change_nothing_and_off_is_the_base(any_model, ids, settings) -> None:
    with torch.no_grad():
        base = any_model(ids).logits
        add_adapters(any_model, LoraSettings(rank=4, **settings))
        assert (any_model(ids).logits - base).abs().max() <= 1e-5
    fold_adapters(any_model)
    adapted(any_model, **settings)
    with torch.no_grad():
        assert (any_model(ids).logits - base).abs().max() > 0.01
        with adapters_off(any_model):
            again = any_model(ids).logits
    assert (again - base).abs().max() <= 1e-5


def test_off_and_merged_leave_the_base_bit_for_bit(model, ids) -> None:
    with torch.no_grad():
        base, before = model(ids).logits, {name: tensor.clone() for name, tensor in model.state_dict().items()}
        adapted(model, targets=EVERYWHERE)
        merged_state(model)
        with adapters_off(model):
            assert torch.equal(model(ids).logits, base)
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("settings", [{"targets": EVERYWHERE}, {"dora": True}])
def test_merged_folded_and_cached_models_equal_the_adapted_one(any_model, ids, settings) -> None:
    adapted(any_model, **settings)
    plain = CausalLM(any_model.config)
    plain.load_state_dict(merged_state(any_model))
    with torch.no_grad():
        ours = any_model(ids).logits
        cache = KVCache(any_model.config, 3, 64)
        slots, lengths = torch.arange(3), torch.full((3,), ids.shape[1])
        cached = any_model.extend_all(ids, lengths, slots, cache).logits
        assert (plain(ids).logits - ours).abs().max() <= 1e-5
        assert (cached - ours).abs().max() <= 1e-4
        fold_adapters(any_model)
        assert torch.equal(any_model(ids).logits, plain(ids).logits)
    assert not has_adapters(any_model) and any_model.state_dict().keys() == plain.state_dict().keys()


def test_folded_layers_keep_the_type_of_their_products(model) -> None:
    for _, module in adaptable(model):
        module.compute = torch.bfloat16
    adapted(model, targets=EVERYWHERE)
    fold_adapters(model)
    assert {module.compute for _, module in adaptable(model)} == {torch.bfloat16}


@pytest.mark.parametrize("dora", [False, True])
def test_only_adapters_get_gradients(model, ids, dora) -> None:
    adapted(model, dora=dora)
    model(ids).logits.square().mean().backward()
    names = {name for name, p in model.named_parameters() if p.grad is not None}
    assert names == {name for name, _ in model.named_parameters() if is_adapter_tensor(name)} and names
    assert not any(word in name for name in names for word in ("router", "embed", "head", "norm"))
    frozen = {name for name in trained_state(model) if not is_adapter_tensor(name)}
    assert not any(name.endswith("weight") for name in frozen)


@pytest.mark.parametrize("settings", [{"targets": EVERYWHERE}, {"dora": True}, {"targets": ["k_proj", "o_proj"]}])
def test_files_come_back_bit_exact(any_model, ids, tmp_path: Path, settings) -> None:
    if settings.get("targets") == ["k_proj", "o_proj"] and any_model.config.attention == "latent":
        settings = {"targets": ["kv_b_proj", "o_proj"]}
    save_checkpoint(any_model, tmp_path / "base")
    lora = adapted(any_model, **settings)
    save_adapter(any_model, lora, tmp_path / "adapter", tmp_path / "base")
    back = load_checkpoint(tmp_path / "base")
    put_adapter(back, tmp_path / "adapter", tmp_path / "base")
    assert back.state_dict().keys() == any_model.state_dict().keys()
    for name, tensor in any_model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    save_checkpoint(any_model, tmp_path / "merged")
    with torch.no_grad():
        assert (load_checkpoint(tmp_path / "merged")(ids).logits - any_model(ids).logits).abs().max() <= 1e-5


@pytest.mark.parametrize("family", list(FAMILIES))
def test_adapters_of_every_family_come_back_from_files(family: str, tmp_path: Path) -> None:
    transformers_model(family, 3).save_pretrained(tmp_path / "base")  # type: ignore[operator]
    model = load_checkpoint(tmp_path / "base")
    stacked = any(isinstance(module, Experts) for _, module in adaptable(model))  # not in gpt-oss
    lora = adapted(model, targets=[ATTENTION, EXPERTS if stacked else DENSE])
    save_adapter(model, lora, tmp_path / "adapter", tmp_path / "base")
    again = load_checkpoint(tmp_path / "base")
    put_adapter(again, tmp_path / "adapter", tmp_path / "base")
    theirs = again.state_dict()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("dora", [False, True])
def test_the_files_by_pefts_formula_give_the_merged_checkpoint(tmp_path: Path, make_model, dora) -> None:
    """W + scale B A for each key, with DoRA times magnitude by norm of the row: as in peft.tuners.lora."""
    model = make_model("gqa")
    save_checkpoint(model, tmp_path / "base")
    lora = adapted(model, dora=dora, **({} if dora else {"targets": EVERYWHERE}))
    save_adapter(model, lora, tmp_path / "adapter", tmp_path / "base")
    save_checkpoint(model, tmp_path / "merged")
    read = lambda name: {k: t for path in (tmp_path / name).glob("model-*") for k, t in load_file(path).items()}
    base, merged = read("base"), read("merged")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    key = "base_model.model.model.layers.{}.lora_{}.weight"
    for part in ("0.mlp.up_proj", "1.self_attn.o_proj"):
        whole = (
            base[f"model.layers.{part}.weight"] + 2 * tensors[key.format(part, "B")] @ tensors[key.format(part, "A")]
        )
        if dora:
            whole = (
                whole
                * (tensors[f"base_model.model.model.layers.{part}.lora_magnitude_vector"] / whole.norm(dim=1))[:, None]
            )
        assert (merged[f"model.layers.{part}.weight"] - whole).abs().max() <= 1e-6
    if not dora:
        a = tensors[key.format("1.mlp.experts", "A")].reshape(8, 4, -1)  # down: the outer of two nested wrappers
        b = tensors[key.format("1.mlp.experts", "B")].reshape(48, 4, 8)
        delta = 2 * torch.einsum("ore,eri->eoi", b, a)
        down = "model.layers.1.mlp.experts.5.down_proj.weight"
        assert (merged[down] - base[down] - delta[5]).abs().max() <= 1e-6


def test_another_base_and_unknown_options_are_refused(model, tmp_path: Path) -> None:
    save_checkpoint(model, tmp_path / "base")
    lora = adapted(model)
    save_adapter(model, lora, tmp_path / "adapter", tmp_path / "base")
    with torch.no_grad():
        model.norm.weight.add_(1)
    save_checkpoint(model, tmp_path / "other")
    with pytest.raises(CheckpointError, match="another base"):
        put_adapter(load_checkpoint(tmp_path / "other"), tmp_path / "adapter", tmp_path / "other")
    path = tmp_path / "adapter" / "adapter_config.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"bias": "all"}))
    with pytest.raises(CheckpointError, match="sets bias to"):
        put_adapter(load_checkpoint(tmp_path / "base"), tmp_path / "adapter", tmp_path / "base")


@pytest.mark.parametrize(("dora", "lost"), [(False, "lora_A"), (False, "lora_B"), (True, "lora_magnitude_vector")])
def test_an_adapter_without_a_part_of_a_module_is_refused(tmp_path: Path, dora: bool, lost: str) -> None:
    save_checkpoint(tiny_llama(), tmp_path / "base")
    model = load_checkpoint(tmp_path / "base")
    save_adapter(model, adapted(model, dora=dora), tmp_path / "adapter", tmp_path / "base")
    (file,) = (tmp_path / "adapter").glob("*.safetensors")
    tensors = load_file(file)
    gone = next(key for key in tensors if lost in key)
    save_file({key: tensor for key, tensor in tensors.items() if key != gone}, file, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=rf"lacks {gone}: the adapter is incomplete"):
        put_adapter(load_checkpoint(tmp_path / "base"), tmp_path / "adapter", tmp_path / "base")


def test_a_half_of_a_fused_matrix_may_have_an_adapter_alone(tmp_path: Path, make_model) -> None:
    model = make_model("gqa")
    save_checkpoint(model, tmp_path / "base")
    save_adapter(model, adapted(model), tmp_path / "adapter", tmp_path / "base")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({key: tensor for key, tensor in load_file(path).items() if "gate_proj" in key}, path)
    back, base = load_checkpoint(tmp_path / "base"), load_checkpoint(tmp_path / "base")
    put_adapter(back, tmp_path / "adapter", tmp_path / "base")
    fold_adapters(back)
    gate, up = (back.blocks[0].feed.gate_up.weight - base.blocks[0].feed.gate_up.weight).chunk(2)  # type: ignore[union-attr]
    assert gate.abs().max() > 0.01 and not up.any()
    assert len(to_peft(model)) > 10


def test_ranks_and_alphas_by_module_give_the_same_change(tmp_path: Path) -> None:
    """q_proj of layer 0 with rank 2 and alpha 6, of a file whose other modules have rank 4 and alpha 8."""
    save_checkpoint(tiny_llama(), tmp_path / "base")
    model = load_checkpoint(tmp_path / "base")
    save_adapter(model, adapted(model, targets=["q_proj", "o_proj"]), tmp_path / "adapter", tmp_path / "base")
    path, config = tmp_path / "adapter" / "adapter_model.safetensors", tmp_path / "adapter" / "adapter_config.json"
    key = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    tensors = load_file(path)
    a = tensors[key.format("A")] = tensors[key.format("A")][:2].clone()
    b = tensors[key.format("B")] = tensors[key.format("B")][:, :2].clone()
    save_file(tensors, path)
    raw = json.loads(config.read_text())
    config.write_text(
        json.dumps(raw | {"rank_pattern": {"layers.0.self_attn.q_proj": 2}, "alpha_pattern": {"0.self_attn.q_proj": 6}})
    )
    back, base = load_checkpoint(tmp_path / "base"), load_checkpoint(tmp_path / "base")
    put_adapter(back, tmp_path / "adapter", tmp_path / "base")
    fold_adapters(back)
    change = lambda name: back.state_dict()[name] - base.state_dict()[name]
    assert (change("blocks.0.attention.q.weight") - 3 * b @ a).abs().max() <= 1e-6
    fold_adapters(model)
    assert torch.equal(
        back.state_dict()["blocks.1.attention.q.weight"], model.state_dict()["blocks.1.attention.q.weight"]
    )
    for option, value, problem in (
        ("rank_pattern", {".*q_proj": 2}, "only plain names of modules are read"),
        ("rank_pattern", {"q_proj": 3}, "gives it the rank 3: the adapter is damaged"),
        ("alpha_pattern", {"q_proj": "8"}, "sets alpha_pattern of q_proj to '8'; give it a number above 0"),
    ):
        config.write_text(json.dumps(raw | {option: value}))
        with pytest.raises(CheckpointError, match=problem):
            put_adapter(load_checkpoint(tmp_path / "base"), tmp_path / "adapter", tmp_path / "base")


def test_one_of_the_stacks_of_experts_may_have_an_adapter_alone(tmp_path: Path, make_model) -> None:
    """PEFT names an adapter on gate_up_proj without one on down_proj as it names one on down_proj."""
    save_checkpoint(make_model("gqa"), tmp_path / "base")
    model = load_checkpoint(tmp_path / "base")
    save_adapter(model, adapted(model, targets=["experts"]), tmp_path / "adapter", tmp_path / "base")
    path, config = tmp_path / "adapter" / "adapter_model.safetensors", tmp_path / "adapter" / "adapter_config.json"
    inner = {key.replace(".base_layer", ""): tensor for key, tensor in load_file(path).items() if ".base_layer" in key}
    save_file(inner, path)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"target_parameters": ["mlp.experts.gate_up_proj"]}))
    back = load_checkpoint(tmp_path / "base")
    put_adapter(back, tmp_path / "adapter", tmp_path / "base")
    for name, tensor in model.state_dict().items():
        if "lora_gate_up" in name:
            assert torch.equal(back.state_dict()[name], tensor)
        elif "lora_down_b" in name:
            assert not back.state_dict()[name].any()


def test_targets_that_do_not_fit_are_named(make_model) -> None:
    with pytest.raises(ValueError, match="'k_b_proj'"):
        add_adapters(make_model("gqa"), LoraSettings(rank=2, targets=["k_b_proj"]))
    with pytest.raises(ValueError, match="one matrix"):
        add_adapters(make_model("gqa"), LoraSettings(rank=2, targets=["gate_proj"]))
    with pytest.raises(ValueError, match="experts"):
        LoraSettings(rank=2, dora=True, targets=["experts"])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "olora"),
        ("bias", "all"),
        ("modules_to_save", ["lm_head"]),
        ("fan_in_fan_out", True),
        ("layer_replication", [[0, 1]]),
        ("an_option_of_tomorrow", 1.5),
    ],
)
def test_an_option_that_changes_the_result_is_refused_by_name(tmp_path: Path, option: str, value: object) -> None:
    plain = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "init_lora_weights": True, "bias": "none"}
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(plain))
    assert read_adapter_settings(tmp_path).rank == 4
    path.write_text(json.dumps(plain | {option: value}))
    with pytest.raises(CheckpointError, match=f"sets {option} to"):
        read_adapter_settings(tmp_path)
