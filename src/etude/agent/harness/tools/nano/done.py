"""End the session with a final message. Calls after it in the same turn are not run."""

from __future__ import annotations

from etude.agent.harness.tools.tool import ToolContext, ToolResult
from etude.agent.harness.truncation import Keep


class NanoDone:
    """The agent stops when this has been called; its result is never shown to the policy."""

    name = "done"
    parameters = ("message",)
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        return ToolResult(arguments["message"])
