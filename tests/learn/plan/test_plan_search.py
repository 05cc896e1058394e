"""Layouts are compared by what they would take, which is calculated and agrees with what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from etude.learn.model.config import ModelConfig
from etude.learn.model.lora_settings import LoraSettings
from etude.learn.parallel.layout import ParallelLayout
from etude.learn.plan.accelerators import ACCELERATORS
from etude.learn.plan.exchanges import PlannedStep, step_exchanges
from etude.learn.plan.expected_traffic import expected_traffic
from etude.learn.plan.layout_search import LayoutSearch
from etude.learn.plan.shapes import published_shape

SMALL = {"vocab_size": 63, "hidden_size": 36, "heads": 4, "dense_intermediate": 50}
MODELS: dict[str, dict[str, Any]] = {
    "latent": {**SMALL, "layers": 3, "experts": 8, "experts_per_token": 2, "moe_intermediate": 20, "first_dense": 1},
    "sparse": {
        **SMALL, "family": "qwen3_moe", "layers": 2, "kv_heads": 2, "head_dim": 8, "experts": 8, "experts_per_token": 2,
        "moe_intermediate": 20,
    },
    "dense": {**SMALL, "family": "qwen3", "layers": 3, "kv_heads": 2, "head_dim": 8, "tied": True},
}  # fmt: skip
LAYOUTS = [
    {"shard": 4},
    {"replicate": 2, "shard": 4, "experts": 2, "context": 2},
    pytest.param({"shard": 8, "experts": 4}, marks=pytest.mark.nightly),
    pytest.param({"shard": 8, "experts": 8, "context": 4}, marks=pytest.mark.nightly),
]
ALL = LoraSettings(rank=2, targets=["attention", "dense", "experts"], base="bf16")


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(
    ("compute", "recompute", "lora"), [("fp32", False, None), ("bf16", True, None), ("bf16", False, ALL)]
)
def test_what_is_calculated_is_what_is_recorded(
    name: str, layout: dict[str, int], compute: Any, recompute: bool, lora: LoraSettings | None
) -> None:
    config = ModelConfig.model_validate(MODELS[name])
    if not config.experts:
        layout = layout | {"experts": 1}
        lora = lora and LoraSettings(rank=2, base="bf16")
    step = PlannedStep(ParallelLayout(**layout), 2, 32, compute, recompute, lora)
    assert expected_traffic(config, step) == step_exchanges(config, step)


@pytest.mark.parametrize("name", list(MODELS))
def test_what_is_calculated_of_micro_batches_and_of_logprobs_before_a_step_is_what_is_recorded(name: str) -> None:
    config = ModelConfig.model_validate(MODELS[name])
    layout = ParallelLayout(replicate=2, shard=4, experts=2 if config.experts else 1, context=2)
    step = PlannedStep(layout, 2, 32, "bf16", True, batches=5, scored=True)
    assert expected_traffic(config, step) == step_exchanges(config, step)


def _search(name: str, gpus: int, length: int, fixed: bool = False) -> LayoutSearch:
    step = PlannedStep(ParallelLayout(), 1, length, "bf16", True)
    return LayoutSearch(name, published_shape(name), step, ACCELERATORS["h100"], 0.4, gpus, fixed)


def test_a_search_gives_what_fits_and_the_fastest_first() -> None:
    plans = _search("qwen3-30b-a3b", 16, 65_536).best(100)
    assert plans and not any(plan.misfits() for plan in plans)
    rates = [plan.step_tokens / plan.step_s[1] for plan in plans]
    assert rates == sorted(rates, reverse=True)
    assert all(plan.step.layout.ranks == 16 for plan in plans)
    assert {plan.step.recompute for plan in _search("qwen3-4b", 8, 4096).best(100)} == {False, True}
    assert {plan.step.recompute for plan in _search("qwen3-4b", 8, 4096, fixed=True).best(100)} == {True}


def test_experts_are_divided_evenly_and_a_row_has_tokens_for_every_rank() -> None:
    search = _search("glm-4.5-air", 64, 1024)
    for layout in search._layouts():
        assert search.config.experts % layout.experts == 0
        assert layout.context * 128 <= 1024


def test_a_search_without_a_result_names_what_would_help() -> None:
    search = _search("kimi-k2.5", 8, 8192)
    assert search.best(5) == []
    assert "no layout of 8 GPUs of 80 GB fits rows of 8,192 tokens; take more GPUs" in search.text([])
