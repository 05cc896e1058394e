"""Search the contents of files by a regular expression."""

from __future__ import annotations

import re
from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.workspace.bounded_file import UTF16_MARKS
from etude.agent.workspace.search import Query, Rows, SearchFailed
from etude.agent.workspace.workspace import MAX_FILE_BYTES

# A row of minified code says nothing beyond its start.
MAX_ROW_CHARS = 500
# The escape of a newline, its backslash not itself escaped; a class of everything but some characters may well name it.
_NEWLINE = re.compile(r"(?<!\\)(?:\\\\)*\\n")
_ALL_BUT = re.compile(r"(?<!\\)((?:\\\\)*)\[\^\]?(?:\\.|[^\]\\])*\]", re.S)
# More lines around each match would show whole files.
MAX_CONTEXT = 20


class GrepTool:
    """Rows in the order of paths; what .gitignore names and binary files are left out."""

    name = "grep"
    parameters = (
        Parameter("pattern"),
        optional("path"),
        optional("glob"),
        optional("mode", choices=("content", "files", "count")),
        optional("context", "integer", least=0, most=MAX_CONTEXT),
        optional("ignore_case", "boolean"),
        optional("head_limit", "integer", least=1),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        found = await self._rows(arguments, context)
        limit = arguments.get("head_limit", context.settings.max_matches)
        rows = [row if len(row) <= MAX_ROW_CHARS else f"{row[:MAX_ROW_CHARS]} [row cut]" for row in found.rows[:limit]]
        count = f"{len(found.rows) - limit}" if found.whole else f"more than {len(found.rows) - limit}"
        raise_it = context.names.parameter(self.name, "head_limit")
        advice = f"; narrow the search{f' or raise {raise_it}' if raise_it else ''}"
        after = f"[{count} more rows{advice}]" if len(found.rows) > limit else ""

        def remedy(kept: int, dropped: int) -> str:
            return "narrow the search by a path or a pattern"

        text = "\n".join(rows) or "no match"
        return ToolResult(
            context.show(text, "head", remedy=remedy, after=after), facts={"empty_searches": float(not found.rows)}
        )

    async def _rows(self, arguments: dict[str, Any], context: ToolContext) -> Rows:
        pattern, path, glob = arguments["pattern"], arguments.get("path", "."), arguments.get("glob")
        if not pattern.strip():
            raise ToolError("an empty pattern matches everything; say what to look for")
        if "\n" in pattern or _NEWLINE.search(_ALL_BUT.sub(r"\1", pattern)):
            raise ToolError("a pattern applies to single lines; leave the newline out")
        if path.startswith("$"):
            raise ToolError(f"search {path} with the shell")
        path = context.workspace.place(path)
        if not await context.workspace.is_folder(path):
            head = await context.workspace.head(path, MAX_FILE_BYTES)
            if head is None:
                raise ToolError(f"no file or folder {path}")
            if b"\0" in head and not head.startswith(UTF16_MARKS):
                raise ToolError(f"{path} is binary; no text can be searched in it")
        query = Query(
            mode=arguments.get("mode", "content"),
            pattern=pattern,
            ignore_case=arguments.get("ignore_case", False),
            context=arguments.get("context", 0),
            path=path,
        )
        try:
            query = query.only(glob or "", context.workspace.root)
            return await context.searcher.rows(query, context.settings.tool_timeout_s)
        except SearchFailed as error:
            raise ToolError(str(error)) from error
