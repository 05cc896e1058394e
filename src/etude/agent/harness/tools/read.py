"""Read a file or a part of it, as it is: no line numbers unless asked for, so that every line shown can be copied into an edit."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import fits


class ReadTool:
    """`offset` counts from 1, from the end if negative. What was left out is named with the call that shows it."""

    name = "read"
    parameters = (
        Parameter("path"),
        optional("offset", "integer"),
        optional("limit", "integer", least=1),
        optional("numbered", "boolean"),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path = arguments["path"]
        file = await context.workspace.load(path)
        lines = list(file.lines[:-1] if file.lines[-1] == "" else file.lines)
        if not lines:
            return ToolResult(context.show("empty file", "head"), reads=(path,))
        first = _first(arguments.get("offset", 1), len(lines), path)
        page = lines[first - 1 : first - 1 + arguments.get("limit", len(lines))]
        rows = [f"{number}|{line}" for number, line in enumerate(page, first)] if arguments.get("numbered") else page

        def remedy(kept: int, dropped: int) -> str:
            return _rest(context, path, first, kept, len(lines))

        text, after = "\n".join(rows), ""
        if len(page) < len(lines) and fits(text, context.limits):
            after = f"[{_rest(context, path, first, len(page), len(lines))}]"
        return ToolResult(context.show(text, "head", remedy=remedy, after=after), reads=(path,))


def _first(offset: int, total: int, path: str) -> int:
    """The first line to show, from 1. Raises ToolError past the end."""
    first = total + offset + 1 if offset < 0 else max(offset, 1)
    if first > total:
        raise ToolError(f"{path} has {total} lines; line {offset} is past its end")
    return max(first, 1)


def _rest(context: ToolContext, path: str, first: int, kept: int, total: int) -> str:
    """Which lines were shown, and the call that goes on."""
    if kept == 0:
        next_line, words = first + 1, f"line {first} of {total} is longer than an answer may be"
    else:
        next_line, words = first + kept, f"lines {first}-{first + kept - 1} of {total}"
    call = context.names.call("read", path=path, offset=next_line) if next_line <= total else ""
    return f"{words}; continue with {call}" if call else words
