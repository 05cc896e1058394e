"""An editor for the tests of this folder: the SDK's own client, over the pipes of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import acp
from acp.schema import (
    AllowedOutcome,
    DeniedOutcome,
    ReadTextFileResponse,
    RequestPermissionResponse,
    WriteTextFileResponse,
)

SCRIPT = Path(__file__).with_name("acp_agent.py")
MCP_SCRIPT = Path(__file__).parents[1] / "harness" / "mcp_server.py"


class Editor:
    """An editor: remembers what it received, answers questions with `answer`, holds `buffers`."""

    def __init__(self) -> None:
        self.updates: list[tuple[str, Any]] = []
        self.asked: list[Any] = []
        self.answer = "once"
        self.buffers: dict[str, str] = {}
        self.seen = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.seen.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        self.asked.append((tool_call, [option.option_id for option in options]))
        if self.answer == "closed":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer))

    async def read_text_file(self, session_id: str, path: str, **_: Any) -> ReadTextFileResponse:
        if path not in self.buffers:
            raise acp.RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.buffers[path])

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        self.buffers[path] = content
        return WriteTextFileResponse()

    def of(self, kind: str, session_id: str = "") -> list[Any]:
        return [u for s, u in self.updates if u.session_update == kind and session_id in ("", s)]

    def said(self, session_id: str = "") -> str:
        return "".join(update.content.text for update in self.of("agent_message_chunk", session_id))

    async def until(self, kind: str) -> None:
        while not self.of(kind):
            self.seen.clear()
            await self.seen.wait()


Connect = Callable[..., Any]


def surroundings(home: Path) -> dict[str, str]:
    """What the server's process is given: everything of its own lies in the test's folder."""
    paths = os.pathsep.join(path for path in sys.path if path)
    own = {"ETUDE_SESSIONS": "sessions", "XDG_CACHE_HOME": "cache", "XDG_CONFIG_HOME": "config"}
    return {"PYTHONPATH": paths, "PATH": os.environ["PATH"], **{name: str(home / place) for name, place in own.items()}}


def program(*steps: dict[str, Any]) -> list[Any]:
    return [acp.text_block(json.dumps(steps))]


FIX = {"call": ["search_replace", {"file_path": "shop.py", "old_string": "-sum", "new_string": "sum"}]}
RUN = {"call": ["run_terminal_cmd", {"command": "echo hello"}]}
