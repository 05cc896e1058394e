"""rl.mismatch: within the bar for a healthy engine, and able to tell a sick one."""

from __future__ import annotations

import pytest
import torch

from etude.learn.engine.probe import MAX_MEAN_K3, MAX_P99, ProbeMismatch, probe
from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings


def test_engine_and_forward_agree_within_the_bar(model: CausalLM) -> None:
    model.train()
    result = probe(model)
    print(result)
    assert result.within_bar and result.tokens == 768 and result.routes > 0
    assert model.training


def test_the_probe_repeats_exactly(mla: CausalLM) -> None:
    assert probe(mla) == probe(mla)


def test_a_cache_that_is_slightly_off_is_seen(mla: CausalLM, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.learn.model.cache import CacheSpan

    store = CacheSpan.store
    monkeypatch.setattr(CacheSpan, "store", lambda self, layer, values: store(self, layer, values * 1.001))
    result = probe(mla)
    assert not result.within_bar and result.p99_dlogp > MAX_P99


def test_each_bound_counts() -> None:
    good = {
        "mean_k3": MAX_MEAN_K3,
        "p99_dlogp": MAX_P99,
        "max_dlogp": 1.0,
        "routes_equal": True,
        "tokens": 1,
        "routes": 1,
    }
    assert ProbeMismatch(**good).within_bar
    for change in ({"mean_k3": 2e-9}, {"p99_dlogp": 2e-5}, {"routes_equal": False}):
        assert not ProbeMismatch(**{**good, **change}).within_bar


@pytest.mark.nightly
@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_laptop_sized_models_are_within_the_bar(family: str) -> None:
    torch.set_num_threads(1)
    assert probe(new_model(ModelSettings.model_validate({"family": family, "init_head_std": 0.3}), 800)).within_bar
