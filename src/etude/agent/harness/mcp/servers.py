"""The servers of one session: all started concurrently. Those that can't start are reported, and the session continues without them.

The tools are fixed when the session begins: they are part of its prompt and of its harness hash. A server that changes
its list meanwhile is asked again by the next session, which then has another hash.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.agent.harness.mcp.connection import McpConnection, McpError
from etude.agent.harness.mcp.server import McpConfigError, McpServer
from etude.agent.harness.mcp.trust import Approve, ServerTrust
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep

if TYPE_CHECKING:
    from mcp_types import Tool


class McpServers:
    """`tools` are for `Services.mcp`; `problems` are lines for the person."""

    def __init__(self) -> None:
        self.tools: tuple[McpTool, ...] = ()
        self.problems: list[str] = []
        self._open: list[McpConnection] = []

    @classmethod
    async def start(
        cls, servers: Sequence[McpServer], folder: Path, *, trust: ServerTrust, approve: Approve | None = None
    ) -> McpServers:
        """Of servers with the same name the first counts. One that is not trusted yet is asked for, one after the other;
        without `approve` it is left out."""
        found = cls()
        allowed: list[McpServer] = []
        for server in {server.name: server for server in reversed(servers)}.values():
            if await _allowed(server, folder, trust, approve):
                allowed.append(server)
            else:
                found.problems.append(
                    f"the MCP server {server.name} of {server.source} was not approved: {server.shown}"
                )
        results = await asyncio.gather(*(found._begin(server, folder) for server in allowed))
        tools = sorted((tool for tools in results for tool in tools), key=lambda tool: tool.name)
        found.tools = tuple({tool.name: tool for tool in tools}.values())
        return found

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._open))
        self._open.clear()

    async def _begin(self, server: McpServer, folder: Path) -> list[McpTool]:
        try:
            connection = McpConnection(server, folder)
            tools = await connection.open()
        except (McpError, McpConfigError) as error:
            self.problems.append(str(error))
            return []
        self._open.append(connection)
        return [McpTool.of(tool, connection) for tool in tools]


async def _allowed(server: McpServer, folder: Path, trust: ServerTrust, approve: Approve | None) -> bool:
    if trust.holds(server, folder):
        return True
    if approve is None or not await approve(server):
        return False
    trust.grant(server, folder)
    return True


# What OpenAI-compatible endpoints take as a function's name.
MAX_NAME_CHARS = 64
_STRANGE = re.compile(r"[^A-Za-z0-9_-]")


def presented_name(server: str, tool: str) -> str:
    """`mcp__server__tool`. A name that endpoints would refuse is bent, and then ends in six digits of its hash, so that no two
    become one."""
    name = f"mcp__{server}__{tool}"
    bent = _STRANGE.sub("_", name)
    if bent == name and len(name) <= MAX_NAME_CHARS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{bent[: MAX_NAME_CHARS - 7]}_{digest}"


@dataclass(frozen=True)
class McpTool:
    """A `ServedTool`. Servers check arguments themselves and say what is wrong with them."""

    name: str
    schema: dict[str, Any]
    remote: str  # its name at the server
    connection: McpConnection
    keep: Keep = "head"

    @classmethod
    def of(cls, tool: Tool, connection: McpConnection) -> McpTool:
        name = presented_name(connection.server.name, tool.name)
        function = {"name": name, "description": tool.description or tool.title or "", "parameters": tool.input_schema}
        return cls(name, {"type": "function", "function": function}, tool.name, connection)

    @property
    def parameters(self) -> list[str]:
        return list(self.schema["function"]["parameters"].get("properties", {}))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        try:
            text, failed = await self.connection.call(self.remote, arguments)
        except McpError as error:
            raise ToolError(str(error)) from error
        return ToolResult(await context.show_output(text), failed=failed)
