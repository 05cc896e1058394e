"""A stretched checkpoint keeps its weights, reads as far as it says and no further, and is the same model to transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import load_checkpoint, save_checkpoint
from etude.learn.model.config import ModelConfig
from etude.learn.model.rope import frequencies
from etude.learn.model.settings import ModelSettings
from etude.learn.model.stretch import reachable_positions, stretch, stretch_config

FAMILIES = ("mla", "gqa")


def config(**settings: object) -> ModelConfig:
    return ModelConfig.from_settings(ModelSettings.model_validate(settings), 97)


@pytest.mark.parametrize("shape", FAMILIES)
def test_transformers_computes_the_same_from_a_saved_stretched_checkpoint(
    make_model: Callable[[str], CausalLM], tmp_path: Path, shape: str
) -> None:
    longer = stretch(make_model(shape), 32, 4)
    save_checkpoint(longer, tmp_path)
    peer = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = torch.randint(0, 97, (2, 128), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        ours, theirs = longer(ids).logits, peer(ids).logits
    assert theirs.std() > 0.3 and (ours - theirs).abs().max() <= 2e-6
    raw = json.loads((tmp_path / "config.json").read_text())
    for key in ("rope_parameters", "rope_scaling"):
        assert (raw[key]["rope_type"], raw[key]["factor"]) == ("yarn", 4.0)
        assert raw[key]["original_max_position_embeddings"] == 32
    assert raw["max_position_embeddings"] == 128
    assert load_checkpoint(tmp_path).config == longer.config


@pytest.mark.parametrize("shape", FAMILIES)
def test_a_stretch_leaves_every_weight_as_it_is(make_model: Callable[[str], CausalLM], shape: str) -> None:
    before = {name: tensor.clone() for name, tensor in make_model(shape).state_dict().items()}
    after = stretch(make_model(shape), 32, 8).state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("shape", FAMILIES)
def test_a_stretched_model_learns(make_model: Callable[[str], CausalLM], shape: str) -> None:
    longer = stretch(make_model(shape), 32, 4)
    longer(torch.arange(97)[None]).logits.logsumexp(-1).sum().backward()
    assert all(p.grad is not None and p.requires_grad for p in longer.parameters())


@pytest.mark.parametrize("shape", FAMILIES)
def test_a_sequence_longer_than_the_rope_allows_is_refused_naming_the_key(
    make_model: Callable[[str], CausalLM], shape: str
) -> None:
    longer = stretch(make_model(shape), 32, 2)
    longer(torch.zeros(1, 64, dtype=torch.long))
    with pytest.raises(ValueError, match="65 tokens.*end at 64 .max_position_embeddings.*yarn_factor"):
        longer(torch.zeros(1, 65, dtype=torch.long))


@given(trained=st.integers(16, 40_000), factor=st.floats(1.5, 64))
def test_the_reach_is_the_factor_times_what_was_trained(trained: int, factor: float) -> None:
    longer = stretch_config(config(), trained, factor)
    assert longer.yarn is not None and longer.yarn.original_positions == trained
    assert longer.max_positions == reachable_positions(longer) == round(trained * factor)


def test_32k_to_256k_is_a_factor_of_8() -> None:
    shorter = config(max_positions=32768, rope_dim=64, rope_theta=1e6)
    longer = stretch_config(shorter, 32768, 8)
    assert longer.max_positions == 262144
    fast, slow = frequencies(shorter), frequencies(longer)
    assert torch.equal(slow[:1], fast[:1])  # what turns often within the old length stays
    assert torch.allclose(slow[-1], fast[-1] / 8)  # what does not is stretched


def test_factors_of_two_stretches_multiply() -> None:
    twice = stretch_config(stretch_config(config(), 256, 4), 1024, 2)
    assert twice == stretch_config(config(), 256, 8)


def test_a_second_stretch_starts_where_the_first_ends() -> None:
    with pytest.raises(ValueError, match="stretched to 1024 positions.*rows of 256"):
        stretch_config(stretch_config(config(), 256, 4), 256, 2)


def test_a_stretch_by_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a stretch by 1.0 is none"):
        stretch_config(config(), 256, 1.0)
