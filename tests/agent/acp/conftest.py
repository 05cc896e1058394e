"""A folder, and an editor that is connected to a server over it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.schema import ClientCapabilities, FileSystemCapabilities

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module

from acp_lab import SCRIPT, Connect, Editor, surroundings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "shop.py").write_text("def total(items):\n    return -sum(items)\n")
    return place


@pytest.fixture
def connect(tmp_path: Path, own_cache: Path) -> Connect:
    @asynccontextmanager
    async def connected(
        approval: str = "commands", *, files: bool = False, walls: str = "none"
    ) -> AsyncIterator[tuple[Editor, Any]]:
        editor = Editor()
        words = (sys.executable, str(SCRIPT), approval, walls)
        env = surroundings(tmp_path)
        async with acp.spawn_agent_process(editor, *words, env=env, transport_kwargs={"stderr": None}) as (agent, _):  # pyright: ignore[reportArgumentType]
            offered = FileSystemCapabilities(read_text_file=files, write_text_file=files)
            await agent.initialize(acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities(fs=offered))
            yield editor, agent

    return connected
