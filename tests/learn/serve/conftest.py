"""A tiny model behind a served endpoint, one engine for all tests of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
from serve_lab import engine_thread, served_model

from etude.learn.engine.service import EngineThread
from etude.learn.serve.served_model import ServedModel

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(make_renderer: Callable[..., Any]) -> ServedModel:
    return served_model(make_renderer("smollm2"))


@pytest.fixture(scope="module")
def thread(model: ServedModel) -> Iterator[EngineThread]:
    with engine_thread(model) as running:
        yield running
