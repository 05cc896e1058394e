"""rl.mismatch: within the bar for a healthy engine, and able to tell a sick one."""

from __future__ import annotations

import pytest
import torch

from etude.learn.engine.core import EngineCore
from etude.learn.engine.probe import (
    MAX_MEAN_K3,
    MAX_P99,
    PROMPTS,
    EngineMismatch,
    ProbeMismatch,
    compare,
    probe,
    require_same_distribution,
    sample_probe,
)
from etude.learn.engine.settings import EngineSettings
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


@pytest.mark.parametrize("compute", ["fp32", "bf16"])
def test_an_engine_whose_positions_are_rotated_by_another_base_is_refused(compute: str) -> None:
    def made(base: float) -> CausalLM:
        values = {"family": "llama", "hidden_size": 64, "layers": 2, "init_head_std": 0.3, "rope_theta": base}
        return new_model(ModelSettings.model_validate(values), 100)

    sound, broken = made(10_000.0), made(5.0)
    with torch.no_grad():
        for model in (sound, broken):
            for name, tensor in model.named_parameters():
                tensor.mul_(
                    4.0 if "attention" in name and tensor.ndim > 1 else 1.0
                )  # attention then has a say in the logits
    require_same_distribution(compare(sound, _sampled(sound)), "engine", compute)
    with pytest.raises(
        EngineMismatch, match="engine samples from another distribution .* mean k3 .* nothing was trained"
    ):
        require_same_distribution(compare(sound, _sampled(broken)), "engine", compute)


def test_a_mismatch_that_is_no_number_is_refused() -> None:
    with pytest.raises(EngineMismatch, match="mean k3 nan"):
        require_same_distribution(ProbeMismatch(float("nan"), 0.0, 0.0, True, 1, 0), "engine", "fp32")


def _sampled(model: CausalLM):
    return sample_probe(EngineCore(model, EngineSettings(max_slots=PROMPTS, max_batch=PROMPTS, max_len=96)))
