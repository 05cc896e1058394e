"""Tiny models of both families, ours and transformers', with the same weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.learn.model.causal_lm import CausalLM
from etude.learn.model.config import ModelConfig
from etude.learn.model.init import draw
from etude.learn.model.settings import ModelSettings, YarnSettings

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share `family_lab`

VOCABULARY = 97

YARN = YarnSettings(factor=4.0, original_positions=32, mscale=1.0, mscale_all_dim=0.7)
SHAPES: dict[str, dict[str, Any]] = {
    "mla": {},
    "mla-groups": {
        "experts": 16,
        "expert_groups": 4,
        "groups_per_token": 2,
        "experts_per_token": 4,
        "routed_scale": 2.5,
    },
    "mla-qlora": {"q_lora_rank": 24, "first_dense": 0},
    "mla-yarn": {"yarn": YARN, "shared_experts": 2},
    "mla-all": {
        "q_lora_rank": 24,
        "yarn": YARN,
        "experts": 16,
        "expert_groups": 4,
        "groups_per_token": 1,
        "norm_topk": False,
        "rope_interleave": False,
        "first_dense": 2,
    },
    "gqa": {"family": "qwen3_moe"},
    "gqa-sparse": {"family": "qwen3_moe", "layers": 4, "sparse_step": 2, "dense_layers": (3,), "norm_topk": False},
    "gqa-yarn": {"family": "qwen3_moe", "yarn": YARN, "kv_heads": 4, "dense_layers": ()},
}


def settings_for(shape: str) -> ModelSettings:
    small = {
        "hidden_size": 48,
        "layers": 3,
        "kv_lora_rank": 20,
        "nope_dim": 12,
        "rope_dim": 8,
        "v_dim": 14,
        "head_dim": 12,
    }
    small |= {"dense_intermediate": 40, "moe_intermediate": 24, "max_positions": 256, "init_head_std": 0.1}
    return ModelSettings.model_validate(small | SHAPES[shape])


def tiny_model(shape: str) -> CausalLM:
    """Drawn with a selection bias that matters, in every norm a weight that matters."""
    settings = settings_for(shape)
    model = CausalLM(ModelConfig.from_settings(settings, VOCABULARY))
    draw(model, settings)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.ndim == 1:
                noise = torch.empty(tensor.shape).normal_(0, 0.1, generator=generator)
                tensor.add_(noise)
                assert "bias" in name or "norm" in name
    return model


@pytest.fixture(params=list(SHAPES))
def any_model(request: pytest.FixtureRequest) -> CausalLM:
    """Each shape in turn."""
    return tiny_model(request.param)


@pytest.fixture(params=["mla-groups", "gqa"])
def model(request: pytest.FixtureRequest) -> CausalLM:
    """One shape of each family."""
    return tiny_model(request.param)


@pytest.fixture
def mla() -> CausalLM:
    return tiny_model("mla")


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (3, 40), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="session")
def make_model():
    """Build a shape by name."""
    return tiny_model
