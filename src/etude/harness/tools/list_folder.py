"""List a folder: its own entries, folders first."""

from __future__ import annotations

from typing import Any

from etude.harness.presets.parameter import optional
from etude.harness.tools.tool import ToolContext, ToolResult


class ListFolder:
    """Names in byte order, folders with a slash, links with an @."""

    name = "list"
    parameters = (optional("path"),)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        entries = await context.workspace.entries(arguments.get("path", "."))
        names = [entry.path + "/" for entry in entries if entry.kind == "dir"]
        names += [entry.path + "@" * (entry.kind == "link") for entry in entries if entry.kind != "dir"]

        def remedy(kept: int, dropped: int) -> str:
            glob = context.names.tool("glob")
            return f"{len(names)} entries in all" + (f"; narrow them with {glob}" if glob else "")

        return ToolResult(context.show("\n".join(names) or "empty folder", "head", remedy=remedy))
