"""Delete one file."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter
from etude.agent.harness.tools.tool import ToolContext, ToolResult


class DeleteTool:
    """Never a folder: that is a command to be seen."""

    name = "delete"
    parameters = (Parameter("path"),)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = arguments["path"]
        removed = await context.workspace.remove(path)
        words = {
            "file": f"deleted {path}",
            "link": f"deleted the link {path}",
            "large file": f"deleted {path}, which can't be restored",
        }
        return ToolResult(context.show(words[removed], "head"), facts={"edits": 1.0})
