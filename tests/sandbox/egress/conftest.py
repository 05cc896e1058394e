"""A town for each test: see `egress_town`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module

from egress_shelf import Shelf
from egress_town import Town


@pytest_asyncio.fixture
async def town() -> AsyncIterator[Town]:
    made = Town()
    yield made
    await made.close()


@pytest_asyncio.fixture
async def shelf() -> AsyncIterator[Shelf]:
    made = Shelf()
    server = await made.start()
    yield made
    server.close()
