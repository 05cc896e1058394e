"""An endpoint to be asked over real sockets."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.serving import serving
from etude.agent.proxy.settings import CaptureSettings

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module
from captured import Endpoint, Serve  # pyright: ignore[reportMissingImports]


@pytest.fixture
def served(tmp_path: Path) -> Serve:
    """Serves a policy on a free port."""

    @asynccontextmanager
    async def serve(policy: Any, renderer: Any = None, **settings: Any) -> AsyncIterator[Endpoint]:
        book = SessionRegistry(policy, CaptureSettings(tmp_path / "sessions", **settings), renderer)
        async with serving(book) as address, httpx.AsyncClient(base_url=address, timeout=20) as http:
            yield Endpoint(address, book, http)

    return serve
