"""Both families of small models; the lab in this folder is importable by its name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from etude.learn.model.causal_lm import CausalLM

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
from engine_lab import small_model

torch.set_num_threads(1)  # small matrices: a second thread only waits, and on a busy machine it waits long


@pytest.fixture(params=["deepseek_v3", "qwen3_moe"])
def model(request: pytest.FixtureRequest) -> CausalLM:
    return small_model(request.param)


@pytest.fixture
def mla() -> CausalLM:
    return small_model("deepseek_v3")
