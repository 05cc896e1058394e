"""Tiny models and rollouts for the train room's tests; the lab in this folder is importable by its name."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
from train_lab import VOCABULARY, random_rollouts, sampled_segment, tiny_model


@pytest.fixture
def make():
    """The makers above, as a fixture: test modules can't import each other."""
    return SimpleNamespace(
        vocabulary=VOCABULARY, model=tiny_model, segment=sampled_segment, rollouts=random_rollouts
    )  # fmt: skip


@pytest.fixture(params=["deepseek_v3", "qwen3_moe"])
def model(request):
    return tiny_model(family=request.param)
