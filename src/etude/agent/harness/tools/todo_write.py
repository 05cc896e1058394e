"""Keep the list of steps to do: replace it, or change some of its items."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.metrics.todo import STATUSES

_ITEM = Parameter("todo", "object", fields=(optional("id"), optional("content"), Parameter("status", choices=STATUSES)))
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class TodoWriteTool:
    """All items or none. An item without an id has its place in the list as one."""

    name = "todo"
    parameters = (Parameter("todos", "array", item=_ITEM), optional("merge", "boolean"), optional("why"))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        if objection := context.todos.write(arguments["todos"], merge=arguments.get("merge", False)):
            raise ToolError(objection)
        rows = [f"{_MARKS[item.status]} {key} {item.content}" for key, item in context.todos.items.items()]
        return ToolResult(context.show("\n".join(rows) or "the list is empty", "head"))
