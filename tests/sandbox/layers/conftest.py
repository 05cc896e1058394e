"""A store for each test, and folders that look like what a sandbox wrote."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etude.sandbox.layers.store import LayerStore

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LayerStore]:
    made = LayerStore(tmp_path / "store")
    yield made
    made.close()
