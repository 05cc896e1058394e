"""Search the codebase by meaning, through the workspace's index service."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult

# What a question is answered with unless it asks for another number.
DEFAULT_HITS = 8


class CodebaseSearchTool:
    """Each hit: where, what it is, and its lines."""

    name = "codebase_search"
    parameters = (Parameter("query"), optional("under"), optional("limit", "integer", least=1, most=50))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        index = context.services.code_index
        if index is None:
            raise ToolError("there is no code index here")
        query, under = arguments["query"], arguments.get("under")
        if not query.strip():
            raise ToolError("an empty query; ask for what the code does")
        under = None if under in (None, "", ".") else context.workspace.place(under)
        hits = await index.search(query, limit=arguments.get("limit", DEFAULT_HITS), under=under)
        rows = [
            f"{hit.path}:{hit.first_line}-{hit.last_line}{f' {hit.symbol}' if hit.symbol else ''}\n{hit.text.rstrip()}"
            for hit in hits
        ]

        def remedy(kept: int, dropped: int) -> str:
            return "ask for fewer or name a folder"

        text = "\n\n".join(rows) or "no match"
        return ToolResult(context.show(text, "head", remedy=remedy), facts={"empty_searches": float(not hits)})
