"""The worlds in this folder are importable by their names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Tests are no package: this is how they share a module. The S3 server is that of the tests of stores.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "learn" / "weights")]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from run_in_threads import tiny_checkpoint

    return tiny_checkpoint(tmp_path_factory.mktemp("tiny"))
