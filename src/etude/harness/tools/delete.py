"""Delete one file."""

from __future__ import annotations

from typing import Any

from etude.harness.presets.parameter import Parameter
from etude.harness.tools.tool import ToolContext, ToolResult


class Delete:
    """Never a folder: that is a command to be seen."""

    name = "delete"
    parameters = (Parameter("path"),)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = arguments["path"]
        await context.workspace.remove(path)
        said = context.show(f"deleted {path}", "head")
        return ToolResult(said, facts={"edits": 1.0})
