"""Adapters that PEFT writes give PEFT's logits here, and those that are written here give the same logits there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft_lab import MERGED, ask_peft, draw_adapters, near
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from etude.learn.model.adapter_files import put_adapter, save_adapter
from etude.learn.model.adapters import add_adapters, fold_adapters
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.init import new_model
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.settings import ModelSettings
from etude.learn.model.transformers_backend.language_model import TransformersLM

pytestmark = pytest.mark.nightly
SIZES = dict(hidden_size=48, layers=2, heads=4, kv_heads=2, head_dim=12, dense_intermediate=40, max_positions=256)
EXPERTS = dict(experts=4, experts_per_token=2, moe_intermediate=16)
RANKS = {"layers.0.self_attn.q_proj": 2, "up_proj": 6}
ALPHAS = {"gate_proj": 3, "1.mlp.down_proj": 20, "mlp.down_proj": 5}
# Classes that transformers computes here too; their targets are names of the class.
CLASSES: dict[str, dict[str, Any]] = {
    "gemma2": dict(intermediate_size=40, head_dim=12, sliding_window=8),
    "qwen3_next": dict(
        **dict(intermediate_size=40, head_dim=12, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16),
        **dict(shared_expert_intermediate_size=16, linear_num_value_heads=4, linear_num_key_heads=2),
        **dict(linear_key_head_dim=8, linear_value_head_dim=8),
    ),
}
STACKS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
IDS = torch.arange(40).view(2, 20)
WRITTEN_THERE: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"target_modules": "all-linear"}),
    ("llama", {"target_modules": "all-linear", "use_dora": True}),
    ("llama", {"target_modules": "all-linear", "use_rslora": True}),
    ("llama", {"target_modules": ["gate_proj"]}),
    ("llama", {"target_modules": ["q_proj"], "layers_to_transform": [1]}),
    ("llama", {"target_modules": "all-linear", "rank_pattern": RANKS, "alpha_pattern": ALPHAS}),
    ("llama", {"target_modules": "all-linear", "rank_pattern": RANKS, "use_rslora": True, "use_dora": True}),
    ("qwen2", {"target_modules": "all-linear", "use_dora": True}),
    ("qwen3_moe", {"target_modules": ["q_proj"], "target_parameters": STACKS}),
    ("qwen3_moe", {"target_modules": ["q_proj"], "target_parameters": STACKS[:1]}),
    ("qwen3_moe", {"target_modules": ["q_proj"], "target_parameters": STACKS[1:]}),
    ("gemma2", {"target_modules": "all-linear", "use_dora": True}),
    ("qwen3_next", {"target_modules": ["in_proj_qkvz", "q_proj"]}),
]
WRITTEN_HERE: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"targets": ["attention", "dense"]}),
    ("llama", {"targets": ["attention", "dense"], "dora": True}),
    ("qwen3_moe", {"targets": ["attention", "experts"]}),
    ("qwen3_moe", {"targets": ["attention"], "dora": True}),
    ("gemma2", {"targets": ["attention", "dense"]}),
    ("qwen3_next", {"targets": ["attention"]}),
]


def model_of_class(model_type: str) -> CausalLM:
    sizes = dict(vocab_size=97, hidden_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2)
    config = AutoConfig.for_model(model_type, **sizes, **CLASSES[model_type], initializer_range=0.2)
    torch.manual_seed(0)
    return TransformersLM(AutoModelForCausalLM.from_config(config, dtype=torch.float32))


def write_base(folder: Path, family: str) -> CausalLM:
    sizes = SIZES | (EXPERTS if family == "qwen3_moe" else {})
    if family in CLASSES:
        model = model_of_class(family)
    else:
        model = new_model(ModelSettings.model_validate({"family": family, "init_head_std": 0.3, **sizes}), 97)
    save_checkpoint(model, folder / "base")
    save_file({"ids": IDS}, folder / "ids.safetensors")
    return model


@torch.no_grad()
def test_what_peft_writes_has_pefts_logits(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(WRITTEN_THERE))]
    bases = [write_base(folder, family)(IDS).logits for folder, (family, _) in zip(folders, WRITTEN_THERE, strict=True)]
    found = ask_peft([(folder, options) for folder, (_, options) in zip(folders, WRITTEN_THERE, strict=True)])
    for folder, case, base, theirs in zip(folders, WRITTEN_THERE, bases, found, strict=True):
        model = load_checkpoint(folder / "base")
        put_adapter(model, folder / "adapter", folder / "base")
        assert near(model(IDS).logits, theirs) and not near(base, theirs), case
        fold_adapters(model)
        assert near(model(IDS).logits, theirs, MERGED), case


@torch.no_grad()
def test_what_is_written_here_has_the_same_logits_in_peft(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(len(WRITTEN_HERE))]
    ours: list[Tensor] = []
    for folder, (family, settings) in zip(folders, WRITTEN_HERE, strict=True):
        model, lora = write_base(folder, family), LoraSettings(rank=4, alpha=8, **settings)
        add_adapters(model, lora)
        draw_adapters(model)
        save_adapter(model, lora, folder / "adapter", folder / "base")
        ours.append(model(IDS).logits)
    for case, mine, theirs in zip(WRITTEN_HERE, ours, ask_peft([(folder, None) for folder in folders]), strict=True):
        assert near(mine, theirs), (case, float((mine - theirs).abs().max()), float(theirs.std()))
