"""The servers of one session: all started side by side, those that can't be are told, and the session goes on without them.

What tools there are is settled when the session begins: they stand in its prompt and in its harness hash. A server that changes
its list meanwhile is asked again by the next session, which then has another hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from etude.agent.harness.mcp.connection import Connection, McpError
from etude.agent.harness.mcp.server import McpConfigError, Server
from etude.agent.harness.mcp.tool import McpTool
from etude.agent.harness.mcp.trust import Approve, Trust


class Servers:
    """`tools` are for `Services.mcp`; `problems` are lines for the person."""

    def __init__(self) -> None:
        self.tools: tuple[McpTool, ...] = ()
        self.problems: list[str] = []
        self._open: list[Connection] = []

    @classmethod
    async def start(
        cls, servers: Sequence[Server], folder: Path, *, trust: Trust, approve: Approve | None = None
    ) -> Servers:
        """Of servers with the same name the first counts. One that is not trusted yet is asked for, one after the other;
        without `approve` it is left out."""
        found = cls()
        allowed: list[Server] = []
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

    async def _begin(self, server: Server, folder: Path) -> list[McpTool]:
        try:
            connection = Connection(server, folder)
            tools = await connection.open()
        except (McpError, McpConfigError) as error:
            self.problems.append(str(error))
            return []
        self._open.append(connection)
        return [McpTool.of(tool, connection) for tool in tools]


async def _allowed(server: Server, folder: Path, trust: Trust, approve: Approve | None) -> bool:
    if trust.holds(server, folder):
        return True
    if approve is None or not await approve(server):
        return False
    trust.grant(server, folder)
    return True
