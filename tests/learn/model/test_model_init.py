"""A new model is the same for the same seed, starts at ln V, and is as large as it says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional as F

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.checkpoint import save_checkpoint
from etude.learn.model.config import ModelConfig
from etude.learn.model.count import count_parameters
from etude.learn.model.init import new_model
from etude.learn.model.rope import Rope, score_scale
from etude.learn.model.settings import Architecture, ModelSettings, YarnSettings


def test_equal_seeds_give_equal_models_and_others_do_not() -> None:
    first, again, other = (new_model(ModelSettings(seed=seed), 64) for seed in (1, 1, 2))
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    assert not torch.equal(first.head.weight, other.head.weight)


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_first_loss_is_that_of_a_uniform_guess(family: str) -> None:
    model = new_model(ModelSettings.model_validate({"family": family}), 512)
    ids = torch.randint(0, 512, (4, 64), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        loss = F.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert float(loss) == pytest.approx(math.log(512), abs=0.1)


def test_mla_gain_scales_its_factors_only() -> None:
    plain, scaled = (new_model(ModelSettings(q_lora_rank=16, init_mla_gain=gain), 64) for gain in (1.0, 3.0))
    changed = {name for name, p in plain.named_parameters() if not torch.equal(p, scaled.get_parameter(name))}
    assert changed == {f"blocks.{n}.attention.{m}.weight" for n in range(4) for m in ("q_a", "q_b", "kv_a", "kv_b")}
    ratio = scaled.get_parameter("blocks.0.attention.q_b.weight") / plain.get_parameter("blocks.0.attention.q_b.weight")
    assert torch.allclose(ratio, torch.tensor(3.0))


def test_init_continues_from_a_checkpoint_with_its_own_shape(mla: CausalLM, tmp_path: Path) -> None:
    save_checkpoint(mla, tmp_path / "c")
    model = new_model(ModelSettings(init=str(tmp_path / "c")), mla.config.vocab_size)
    assert model.config == mla.config and torch.equal(model.head.weight, mla.head.weight)
    with pytest.raises(ValueError, match="vocabulary of 97, its tokenizer.json one of 98"):
        new_model(ModelSettings(init=str(tmp_path / "c")), 98)


def test_a_checkpoint_with_more_rows_than_its_tokenizer_has_ids_is_taken_as_it_is(
    mla: CausalLM, tmp_path: Path
) -> None:
    save_checkpoint(mla, tmp_path / "c")
    assert new_model(ModelSettings(init=str(tmp_path / "c")), 90).config.vocab_size == 97  # padded, as most are


@pytest.mark.parametrize("family", ["deepseek_v3", "qwen3_moe"])
def test_yarn_heats_attention_by_its_own_temperature_in_both_families(family: str) -> None:
    """Rotations and score factor together, by default settings, come to (0.1 ln s + 1)^2: YaRN section 3.4."""
    settings = Architecture.model_validate({"family": family, "yarn": YarnSettings(factor=4.0)})
    config = ModelConfig.from_settings(settings, 10)
    width = config.nope_dim + config.rope_dim if family == "deepseek_v3" else config.head_dim
    rotation = float(Rope(config).table[0, 0, 0])  # at position 0, so the cosine is 1
    temperature = rotation**2 * score_scale(config) * width**0.5
    assert temperature == pytest.approx((0.1 * math.log(4.0) + 1) ** 2, rel=1e-6)


def test_count_is_that_of_the_model(any_model: CausalLM) -> None:
    count = count_parameters(any_model.config)
    assert count.total == sum(p.numel() for p in any_model.parameters())
    config = any_model.config
    idle = config.experts - config.experts_per_token
    expert = 3 * config.hidden_size * config.moe_intermediate
    assert count.total - count.active == len(config.moe_layers) * idle * expert


def test_layers_with_experts_follow_the_family() -> None:
    def layers(**fields) -> tuple[int, ...]:
        return ModelConfig.from_settings(Architecture(layers=6, **fields), 10).moe_layers

    assert layers(first_dense=2) == (2, 3, 4, 5)
    assert layers(family="qwen3_moe", sparse_step=2, dense_layers=(3,)) == (1, 5)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"experts": 4, "experts_per_token": 5}, "experts_per_token=5 exceeds experts=4"),
        ({"family": "qwen3_moe", "heads": 4, "kv_heads": 3}, "not a multiple of kv_heads=3"),
        ({"experts": 8, "expert_groups": 3}, "do not split"),
        ({"experts": 8, "expert_groups": 4, "groups_per_token": 5}, "exceeds expert_groups=4"),
        ({"experts": 8, "expert_groups": 8}, "a group holds 1 expert"),
        ({"experts": 8, "expert_groups": 4, "groups_per_token": 1, "experts_per_token": 3}, "hold fewer than"),
        ({"hiden_size": 4}, "hiden_size"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(fields: dict, complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        ModelSettings.model_validate(fields)
