"""Find files by name."""

from __future__ import annotations

import posixpath
import re
from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.workspace.search import Query, SearchFailed

_GLOBBED = re.compile(r"[*?\[{\\~$:]|\.\.")  # no plain path, or one that is refused with a hint of its own


class GlobTool:
    """What .gitignore names is left out. The order is a setting: by path, as training and benches need it, or newest first."""

    name = "glob"
    parameters = (Parameter("pattern"), optional("path"))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        pattern, path = arguments["pattern"], arguments.get("path", ".")
        if not pattern.strip("/ ") or pattern.startswith("!"):
            raise ToolError(f"{pattern!r} is no pattern; say for example **/*.py")
        path = context.workspace.place(path)
        if not await context.workspace.is_folder(path):
            raise ToolError(f"no folder {path}")
        try:
            query = Query("glob", path=path, order=context.settings.glob_order).only(pattern, context.workspace.root)
            found = await context.searcher.rows(query, context.settings.tool_timeout_s)
        except SearchFailed as error:
            raise ToolError(str(error)) from error

        def remedy(kept: int, dropped: int) -> str:
            return f"{len(found.rows)} files in all; use a narrower pattern"

        text = "\n".join(found.rows) or await _nothing(pattern, path, context)
        facts = {"empty_searches": float(not found.rows)}
        return ToolResult(context.show(text, "head", remedy=remedy), facts=facts)


async def _nothing(pattern: str, path: str, context: ToolContext) -> str:
    """That no file matches, and the remedy where the pattern is a folder's name."""
    if not _GLOBBED.search(pattern) and await context.workspace.is_folder(posixpath.join(path, pattern)):
        return f"no file matches; {pattern} is a folder, use {pattern.rstrip('/')}/**"
    return "no file matches"
