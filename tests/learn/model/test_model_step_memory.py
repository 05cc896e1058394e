"""The prediction of a training step's memory agrees with what autograd keeps."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from family_lab import family_configuration
from kept_counter import kept_bytes
from transformers import AutoConfig

from etude.learn.model import causal_attention, linear, step_memory
from etude.learn.model.adapters import add_adapters
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.compute import compute_in
from etude.learn.model.config import ModelConfig
from etude.learn.model.families import FAMILIES
from etude.learn.model.hf_config import from_hf_config
from etude.learn.model.linear import ROW_STEP
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.model.step_memory import FLOAT, ModelSize, engine_bytes, fitting_tokens, training_bytes
from etude.learn.parallel.shared_training import ContextRank
from etude.learn.train.batch import padded_batch
from etude.learn.train.context_share import context_part

ROWS, LENGTH, ODD = 8, 64, 125


def _config(family: str) -> ModelConfig:
    drawn = family_configuration(family, random.Random(f"{family} 0"))
    return from_hf_config(AutoConfig.for_model(family, **drawn).to_dict())


def _counted(config: ModelConfig, recompute: bool, length: int = LENGTH) -> float:
    """Numbers of each token that the model keeps for its backward pass."""
    model = CausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.02)
    compute_in(model, "fp32", recompute)
    ids = torch.randint(0, config.vocab_size, (ROWS, length), generator=torch.Generator().manual_seed(0))
    nowhere = torch.zeros_like(ids, dtype=torch.bool)
    return kept_bytes(model, lambda: model(ids, logits_at=nowhere).hidden) / FLOAT / ids.numel()


@pytest.fixture(params=["torch's", "own"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Products and attention as on every kind of CPU, by torch's kernels or by this package's."""
    own = request.param == "own"
    monkeypatch.setattr(step_memory, "OWN_KERNELS", own)
    monkeypatch.setattr(causal_attention, "BLOCKS_ARE_FASTER", own)
    monkeypatch.setattr(linear, "_ONEDNN", linear._onednn_operator(own))
    return request.param


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_step_keeps_what_is_predicted_within_a_tenth(family: str, kernels: str) -> None:
    config = _config(family)
    size = ModelSize.of(config, ROWS * LENGTH, LENGTH, full=True)
    assert size.kept == pytest.approx(_counted(config, recompute=False), rel=0.1)
    assert size.kept_recomputing == pytest.approx(_counted(config, recompute=True), rel=0.1)


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "deepseek_v3"])
def test_copies_with_padding_are_predicted_within_a_tenth(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((step_memory, "OWN_KERNELS"), (causal_attention, "BLOCKS_ARE_FASTER")):
        monkeypatch.setattr(module, name, True)
    monkeypatch.setattr(linear, "_ONEDNN", linear._onednn_operator(True))
    monkeypatch.setattr(linear, "ONEDNN_MULTIPLY_ADDS", 0)  # products of a real model are larger than that
    config = _config(family)
    assert ROWS * ODD % ROW_STEP
    size = ModelSize.of(config, ROWS * ODD, ODD)
    assert size.kept == pytest.approx(_counted(config, recompute=False, length=ODD), rel=0.1)


@pytest.mark.parametrize("family", ["llama", "qwen3", "deepseek_v3"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_share_a_row_keep_its_keys_and_values_each(family: str, ranks: int, kernels: str) -> None:
    config, tokens = _config(family), 128
    model = CausalLM(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.02)
    ids = np.random.default_rng(0).integers(0, config.vocab_size, tokens)
    batch, kept = padded_batch([ids], [np.ones(tokens, np.float32)]), 0
    for rank in range(ranks):
        part = context_part(batch, ContextRank(rank, ranks, lambda rows: rows.repeat(ranks, 1), token=10.0, pair=0.1))
        nowhere = torch.zeros_like(part.real)
        kept += kept_bytes(model, lambda: model(part.ids, part.mask(), logits_at=nowhere).hidden)  # noqa: B023
    size = ModelSize.of(config, tokens, tokens, full=True, shared=True)
    assert kept / FLOAT / tokens == pytest.approx(size.kept + (ranks - 1) * size.gathered, rel=0.1)


def test_adapters_need_no_moments_of_the_model() -> None:
    config = _config("llama")
    full, lora = ModelSize.of(config, 512, 64), LoraSettings(rank=2)
    adapters = ModelSize.of(config, 512, 64, lora)
    model = CausalLM(config)
    add_adapters(model, lora)
    assert adapters.trained == sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert adapters.parameters == full.parameters + adapters.trained
    assert ModelSize.of(config, 512, 64, LoraSettings(rank=2, dora=True)).kept > adapters.kept
    assert training_bytes(adapters, 512) < training_bytes(full, 512)


def test_recomputing_and_fewer_tokens_take_less() -> None:
    size = ModelSize(parameters=1000, trained=1000, kept=100_000, kept_recomputing=5_000, block=10_000)
    whole = training_bytes(size, 10_000)
    assert training_bytes(size, 10_000, recompute=True) < whole
    assert training_bytes(size, 5_000) < whole
    assert training_bytes(size, 5_000, kept_tokens=10_000) == whole + 1000 * FLOAT  # gradients of one, graphs of others
    assert training_bytes(size, 10_000, copies=2) == whole + 2 * 1000 * FLOAT


@pytest.mark.parametrize("recompute", [False, True])
def test_the_tokens_that_fit_take_the_memory_that_is_there(recompute: bool) -> None:
    size = ModelSize(parameters=1_000_000, trained=1_000_000, kept=100_000, kept_recomputing=5_000, block=10_000)
    memory = 4_000_000_000
    batch, graph = fitting_tokens(size, memory, 1000, recompute=recompute, copies=2)
    taken = training_bytes(size, batch, recompute=recompute, kept_tokens=graph, copies=2)
    assert batch == 1000 and memory - size.kept * FLOAT < taken <= memory
    alone, graph = fitting_tokens(size, memory, 1_000_000, recompute=recompute, copies=2)
    assert alone <= graph and training_bytes(size, alone, recompute=recompute, copies=2) <= memory
    assert fitting_tokens(size, 100_000_000, 1000, recompute=recompute) == (0, 0)


def test_an_engine_holds_weights_and_the_cache_of_every_slot() -> None:
    config = _config("llama")
    one, two = (engine_bytes(config, 1000, slots, 64, prefill_tokens=64) for slots in (1, 2))
    cache = FLOAT * config.layers * 64 * config.cache_width
    assert two - one == cache + 4 * config.vocab_size * FLOAT
    assert engine_bytes(config, 1000, 2, 64, prefill_tokens=64, rounded=True) < two
    assert engine_bytes(config, 1000, 2, 64, prefill_tokens=64, states=2) == two + 2 * 1000 * FLOAT
    assert engine_bytes(config, 1000, 2, 64, prefill_tokens=128) > two
