"""Read a file, as it is: no line numbers, so that every line shown can be copied into an edit."""

from __future__ import annotations

from etude.agent.harness.tools.tool import ToolContext, ToolResult
from etude.agent.harness.truncation import Keep


class NanoView:
    """The whole file without its last newline; the sandbox's cap is applied by the caller, keeping the head."""

    name = "view"
    parameters = ("path",)
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        text = (await context.workspace.read(arguments["path"])).removesuffix("\n")
        return ToolResult(text or "empty file", reads=(arguments["path"],))
