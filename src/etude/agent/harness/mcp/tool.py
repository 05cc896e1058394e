"""A server's tool as the agent's: `mcp__server__tool`, its schema passed on untouched, its answers cut like any other's."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etude.agent.harness.mcp.connection import Connection, McpError
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep

if TYPE_CHECKING:
    from mcp_types import Tool

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
    connection: Connection
    keep: Keep = "head"

    @classmethod
    def of(cls, tool: Tool, connection: Connection) -> McpTool:
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
