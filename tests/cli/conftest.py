"""Lets the tests of this folder share the endpoint lab, and runs the command in their own process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module

from here import Here


@pytest.fixture
def here(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(tmp_path, capfd, monkeypatch)
