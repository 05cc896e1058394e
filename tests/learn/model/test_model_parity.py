"""The network equals transformers' classes: logits, gradients, files in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM

from etude.learn.model.cache import KVCache
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.hf_config import from_hf_config
from etude.learn.model.hf_keys import to_hf
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings

LOGIT_TOLERANCE = 2e-6
GRADIENT_TOLERANCE = 1e-5


@pytest.fixture
def peer(any_model: CausalLM, tmp_path: Path) -> torch.nn.Module:
    """transformers' model, loaded by transformers from our export."""
    save_checkpoint(any_model, tmp_path / "export")
    return AutoModelForCausalLM.from_pretrained(tmp_path / "export", dtype=torch.float32)


def test_logits_equal_transformers(any_model: CausalLM, peer: torch.nn.Module, ids: torch.Tensor) -> None:
    with torch.no_grad():
        ours, theirs = any_model(ids).logits, peer(ids).logits
    assert theirs.std() > 0.3  # logits of a size at which 2e-6 means something
    assert (ours - theirs).abs().max() <= LOGIT_TOLERANCE


def test_gradient_of_every_parameter_equals_transformers(
    any_model: CausalLM, peer: torch.nn.Module, ids: torch.Tensor
) -> None:
    for logits in (any_model(ids).logits, peer(ids, use_cache=False).logits):
        F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    gradients = {name: p.grad for name, p in any_model.named_parameters() if p.grad is not None}
    assert len(gradients) == len(list(any_model.parameters()))
    ours = dict(to_hf(gradients, any_model.config))
    fused = {name: p.grad for name, p in peer.named_parameters()}
    for name, gradient in fused.items():
        assert gradient is not None
        assert (gather(name, ours, gradient) - gradient).abs().max() <= GRADIENT_TOLERANCE, name


def gather(name: str, ours: dict[str, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """Our per-expert gradients in transformers' fused in-memory layout."""
    if name in ours:
        return ours[name]
    root, part = name.rsplit(".", 1)
    halves = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}[part]
    return torch.stack([torch.cat([ours[f"{root}.{e}.{half}.weight"] for half in halves]) for e in range(len(like))])


def test_transformers_export_comes_back_bit_exact(any_model: CausalLM, peer: torch.nn.Module, tmp_path: Path) -> None:
    peer.save_pretrained(tmp_path / "theirs")  # type: ignore[operator]
    back = load_checkpoint(tmp_path / "theirs")
    assert back.config == any_model.config
    for name, tensor in any_model.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name


def test_transformers_reads_the_same_rope_from_present_and_former_keys(any_model: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(any_model, tmp_path / "export")
    path = tmp_path / "export" / "config.json"
    raw = json.loads(path.read_text())
    present = AutoConfig.from_pretrained(path.parent).rope_parameters
    del raw["rope_parameters"]
    path.write_text(json.dumps(raw))
    former = AutoConfig.from_pretrained(path.parent).rope_parameters
    assert {**former, "type": None} == {**present, "type": None}
    assert from_hf_config(raw) == any_model.config


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_the_recipe_size_equals_transformers_too(family: str, tmp_path: Path) -> None:
    """Large enough for the paths that only large batches take."""
    settings = ModelSettings.model_validate({"family": family, "init_head_std": 0.05})
    model = new_model(settings, 512)
    save_checkpoint(model, tmp_path / "export")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "export", dtype=torch.float32)
    ids = torch.randint(0, 512, (8, 128), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        ours, theirs = model(ids).logits, peer(ids).logits
    assert theirs.std() > 0.3
    assert (ours - theirs).abs().max() <= LOGIT_TOLERANCE


def test_greedy_tokens_equal_transformers_generate(model: CausalLM, ids: torch.Tensor, tmp_path: Path) -> None:
    save_checkpoint(model, tmp_path / "export")
    peer = AutoModelForCausalLM.from_pretrained(tmp_path / "export", dtype=torch.float32)
    theirs = peer.generate(ids, max_new_tokens=12, do_sample=False, attention_mask=torch.ones_like(ids))[
        :, ids.shape[1] :
    ]
    cache = KVCache(model.config, slots=3, max_len=64)
    slots, step = torch.arange(3), ids
    ours = []
    for _ in range(12):
        logits, _ = model.extend(step, torch.full((3,), step.shape[1]), slots, cache)
        step = logits.argmax(-1, keepdim=True)
        ours.append(step)
    assert torch.equal(torch.cat(ours, 1), theirs)
