"""Keep the list of steps to do: replace it, or change some of its items."""

from __future__ import annotations

from typing import Any

from etude.harness.parameter import Parameter, optional
from etude.harness.todo import STATUSES, TodoList
from etude.harness.tools.tool import ToolContext, ToolError, ToolResult

_ITEM = Parameter("todo", "object", fields=(optional("id"), optional("content"), Parameter("status", choices=STATUSES)))
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class TodoWrite:
    """All items or none. An item without an id has its place in the list as one."""

    name = "todo"
    parameters = (Parameter("todos", "array", item=_ITEM), optional("merge", "boolean"), optional("why"))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        items = {str(item.get("id", number)): item for number, item in enumerate(arguments["todos"], 1)}
        if len(items) < len(arguments["todos"]):
            raise ToolError("two items have the same id; nothing was changed")
        todos, merge = context.todos, arguments.get("merge", False)
        missing = [key for key, item in items.items() if not self._content(key, item, todos).strip()]
        if missing:
            raise ToolError(f"item {missing[0]!r} is new and has no text; nothing was changed")
        if not merge:
            todos.keep_only(set(items))
        for key, item in items.items():
            todos.put(key, self._content(key, item, todos), item["status"])
        rows = [f"{_MARKS[item.status]} {key} {item.content}" for key, item in todos.items.items()]
        return ToolResult(context.show("\n".join(rows) or "the list is empty", "head"))

    @staticmethod
    def _content(key: str, item: dict[str, Any], todos: TodoList) -> str:
        old = todos.items[key].content if key in todos.items else ""
        return item.get("content", old)
