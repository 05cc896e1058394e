"""Search the web, through whichever provider the session was given."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.services import WebError
from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult

DEFAULT_HITS = 6


class WebSearchTool:
    """Never offered in training and benches: settings leave it out."""

    name = "web_search"
    parameters = (Parameter("query"), optional("limit", "integer", least=1, most=20))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        provider = context.services.web_search
        if provider is None:
            raise ToolError("there is no web search here")
        try:
            hits = await provider.search(arguments["query"], arguments.get("limit", DEFAULT_HITS))
        except WebError as error:
            raise ToolError(str(error)) from error
        text = "\n\n".join(f"{hit.title}\n{hit.url}\n{hit.text}".rstrip() for hit in hits) or "no result"
        return ToolResult(context.show(text, "head"), facts={"empty_searches": float(not hits)})
