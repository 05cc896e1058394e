"""Adapters that PEFT writes load here with PEFT's logits, and those that would give other ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from etude.learn.model.adapter_files import put_adapter, read_adapter_settings
from etude.learn.model.adapters import fold_adapters
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.weights.hf_files import CheckpointError

SIZES = dict(hidden_size=48, layers=2, heads=4, kv_heads=2, head_dim=12, dense_intermediate=40, max_positions=256)
EXPERTS = dict(experts=4, experts_per_token=2, moe_intermediate=16)
STACKS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]


def written_by_peft(folder: Path, family: str, ids: Tensor, **options: Any) -> Tensor:
    """Writes `base` and `adapter` below `folder`; the logits that PEFT computes with both."""
    peft = pytest.importorskip("peft", reason="needs the package peft")
    from transformers import AutoModelForCausalLM

    sizes = SIZES | (EXPERTS if family == "qwen3_moe" else {})
    model = new_model(ModelSettings.model_validate({"family": family, "init_head_std": 0.3, **sizes}), 97)
    save_checkpoint(model, folder / "base")
    base = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    config = peft.LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **{"init_lora_weights": False} | options)
    adapted = peft.get_peft_model(base, config).eval()
    adapted.save_pretrained(folder / "adapter")
    with torch.no_grad():
        return adapted(ids).logits


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", {"target_modules": "all-linear"}),
        ("llama", {"target_modules": "all-linear", "use_dora": True}),
        ("llama", {"target_modules": "all-linear", "use_rslora": True}),
        ("llama", {"target_modules": ["gate_proj"]}),
        ("llama", {"target_modules": ["q_proj"], "layers_to_transform": [1]}),
        ("qwen2", {"target_modules": "all-linear", "use_dora": True}),
        ("qwen3_moe", {"target_modules": ["q_proj"], "target_parameters": STACKS}),
    ],
)
def test_what_peft_writes_has_pefts_logits(tmp_path: Path, family: str, options: dict[str, Any]) -> None:
    ids = torch.arange(40).view(2, 20)
    theirs = written_by_peft(tmp_path, family, ids, **options)
    model = load_checkpoint(tmp_path / "base")
    put_adapter(model, tmp_path / "adapter", tmp_path / "base")
    with torch.no_grad():
        apart = model(ids).logits
        fold_adapters(model)
        merged = model(ids).logits
    for ours in (apart, merged):
        assert (ours - theirs).abs().max() <= 3e-5 * max(1.0, float(theirs.std()))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", "olora"),
        ("rank_pattern", {"q_proj": 2}),
        ("alpha_pattern", {"q_proj": 2}),
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
