"""Adapters on classes of transformers: the base stays, A and B alone train, and merging and files give the same model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F
from transformers_lab import peer, tokens

from etude.learn.engine.adapter_merger import AdapterMerger
from etude.learn.model.adapter_files import put_adapter, save_adapter
from etude.learn.model.adapters import (
    LoraLinear,
    adapted_modules,
    adapters_off,
    add_adapters,
    fold_adapters,
    is_adapter_tensor,
    target_names,
    trained_state,
)
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.compute import computing
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.transformers_backend.language_model import TransformersLM
from etude.learn.weights.adapter_folder import join

CLASSES = ["gemma2", "qwen3_next", "falcon_h1", "gemma4_text", "gpt_neox"]
all_classes = pytest.mark.parametrize("model_type", CLASSES)
IDS = tokens(0, 24)


def adapted(model: TransformersLM, **settings) -> LoraSettings:
    """Gives the model adapters that change it."""
    lora = LoraSettings(rank=3, alpha=6, **settings)
    add_adapters(model, lora)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if is_adapter_tensor(name):
                tensor.add_(torch.empty(tensor.shape).normal_(0, 0.1, generator=generator))
    return lora


def far(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).detach().abs().max() / expected.detach().std())


@all_classes
@pytest.mark.parametrize("dora", [False, True], ids=["lora", "dora"])
def test_new_adapters_change_nothing_and_off_is_the_base(model_type: str, dora: bool) -> None:
    model = TransformersLM(peer(model_type))
    with torch.no_grad():
        base = model(IDS).logits
        add_adapters(model, LoraSettings(rank=3, dora=dora))
        assert far(model(IDS).logits, base) <= 2e-5
        fold_adapters(model)
        assert not adapted_modules(model) and all(p.requires_grad for p in model.parameters())
        adapted(model, dora=dora)
        assert far(model(IDS).logits, base) > 0.05
        with adapters_off(model):
            assert far(model(IDS).logits, base) <= 2e-5


@all_classes
def test_only_adapters_train_with_and_without_recomputation(model_type: str) -> None:
    model = TransformersLM(peer(model_type))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapted(model)
    gradients = []
    for recompute in (False, True):
        model.zero_grad()
        with computing(model.train(), "fp32", recompute):
            F.cross_entropy(model(IDS).logits[0, :-1], IDS[0, 1:]).backward()
        found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        assert found and all(map(is_adapter_tensor, found))
        assert trained_state(model).keys() - found.keys() <= {name for name, _ in model.named_buffers()}
        assert all(bool(gradient.any()) for gradient in found.values())
        gradients.append(found)
    assert all(torch.allclose(gradients[0][name], gradients[1][name], atol=1e-6) for name in gradients[0])
    after = model.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.sample(2)
@all_classes
def test_a_saved_adapter_is_read_back_joined_with_its_base_and_merged(model_type: str, tmp_path: Path) -> None:
    save_checkpoint(TransformersLM(peer(model_type)), tmp_path / "base")
    model = load_checkpoint(tmp_path / "base")
    assert isinstance(model, TransformersLM)
    lora = adapted(model)
    with torch.no_grad():
        expected = model(IDS).logits
    save_adapter(model, lora, tmp_path / "adapter", tmp_path / "base")
    keys = load_file(tmp_path / "adapter" / "adapter_model.safetensors").keys()
    names = {key.removeprefix("base_model.model.").rpartition(".lora_")[0] for key in keys}
    assert names <= {name for name, _ in peer(model_type).named_modules()}
    again = load_checkpoint(tmp_path / "base")
    assert put_adapter(again, tmp_path / "adapter", tmp_path / "base").rank == 3
    joined = join(tmp_path / "base", tmp_path / "adapter", tmp_path / "cache")
    save_checkpoint(model, tmp_path / "merged")
    merger = AdapterMerger(tmp_path / "base", LoraSettings(rank=3, alpha=6))
    served = load_checkpoint(tmp_path / "base")
    served.load_state_dict(merger({name: t.detach() for name, t in trained_state(model).items()}))
    for found in (again, load_checkpoint(joined), load_checkpoint(tmp_path / "merged"), served):
        with torch.no_grad():
            assert far(found(IDS).logits, expected) <= 5e-5


def test_targets_are_groups_or_names_of_the_class_and_never_routers_or_experts() -> None:
    model = TransformersLM(peer("qwen3_next"))
    chosen = target_names(model, LoraSettings(rank=2))
    assert any(name.endswith("linear_attn.in_proj_qkvz") for name in chosen)
    assert any(name.endswith("shared_expert.up_proj") for name in chosen)
    assert not [name for name in chosen if "gate." in name or name.endswith((".gate", "shared_expert_gate", "lm_head"))]
    assert {name.rpartition(".")[2] for name in target_names(model, LoraSettings(rank=2, targets=["q_proj"]))} == {
        "q_proj"
    }
    attention = target_names(model, LoraSettings(rank=2, targets=["attention"]))
    assert attention and all("attn" in name for name in attention) and len(attention) < len(chosen)
    with pytest.raises(ValueError, match="names experts, which have no adapters in qwen3_next of transformers"):
        add_adapters(model, LoraSettings(rank=2, targets=["attention", "experts"]))
    with pytest.raises(ValueError, match="names 'w1', and this model has only attention, dense"):
        add_adapters(model, LoraSettings(rank=2, targets=["w1"]))


def test_a_layer_that_its_class_does_not_call_is_refused_by_name() -> None:
    inner = peer("stablelm")
    inner.model.layers[0].unused = torch.nn.Linear(4, 4)
    with pytest.raises(
        ValueError, match="model.layers.0.unused .1 such. can have no adapter: StableLmForCausalLM does not call it"
    ):
        add_adapters(TransformersLM(inner), LoraSettings(rank=2))


def test_products_of_adapters_in_bf16_come_close(tmp_path: Path) -> None:
    model = TransformersLM(peer("gemma2"))
    adapted(model)
    with torch.no_grad():
        expected = model(IDS).logits
        with computing(model, "bf16", False):
            assert any(module.compute == torch.bfloat16 for module in model.modules() if isinstance(module, LoraLinear))
            found = model(IDS).logits
    assert 1e-4 < far(found, expected) < 0.2
