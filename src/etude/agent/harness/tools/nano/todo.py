"""Note a step to do, or tick one off. Opening items and leaving them undone is a counted bad habit."""

from __future__ import annotations

from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep


class NanoTodo:
    """`add X` or `done X`."""

    name = "todo"
    parameters = ("text",)
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        if objection := context.todos.say(arguments["text"]):
            raise ToolError(objection)
        return ToolResult("ok")
