"""List a folder: its own entries, folders first."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import optional
from etude.agent.harness.tools.tool import ToolContext, ToolResult
from etude.core.trace.unicode import is_whole, whole


class ListFolderTool:
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

        odd = sum(not is_whole(name) for name in names)
        after = f"[{odd} of these names are no UTF-8: use the shell and a pattern to reach them]" if odd else ""
        text = "\n".join(whole(names)) or "empty folder"
        return ToolResult(context.show(text, "head", remedy=remedy, after=after))
