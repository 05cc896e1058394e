"""A bench of real sandboxes; the project in this folder is importable by its name."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.generator import ProofContext

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module


@pytest.fixture
async def bench() -> AsyncIterator[ProofContext]:
    pool = await open_pool(SandboxSettings())
    yield ProofContext(pool, 20.0)
    await pool.close()
