"""A pool of real sandboxes, and the exercises that sessions are collected on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.tasks.generate.exercises.source import ExerciseSource
from etude.tasks.generate.settings import ExerciseSettings


@pytest.fixture
async def pool() -> AsyncIterator[SandboxPool]:
    opened = await open_pool(SandboxSettings())
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def source() -> ExerciseSource:
    return ExerciseSource(ExerciseSettings())
