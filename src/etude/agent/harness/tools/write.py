"""Write a whole file. An existing file keeps its mode, byte-order mark and line ends; missing folders are made."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter
from etude.agent.harness.tools.replacing import lines
from etude.agent.harness.tools.tool import ToolContext, ToolResult
from etude.agent.workspace.text_file import NotText, TextFile
from etude.agent.workspace.workspace import FileTooLarge


class WriteTool:
    """Says whether the file is new, so that an overwrite by mistake shows."""

    name = "write"
    parameters = (Parameter("path"), Parameter("contents"))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        path, text = arguments["path"], arguments["contents"]
        before = await context.workspace.content_before(path)
        old, note = None, ""
        if isinstance(before, FileTooLarge):
            note = "; the old content was too large to be kept"
        elif before is not None:
            try:
                old = TextFile.decode(before)
            except NotText as unlike:
                note = f"; the old content {unlike}, the new one is UTF-8"
        file = TextFile.like(text, old)
        await context.workspace.save(path, file)
        count = text.count("\n") + (not text.endswith("\n") and bool(text))
        said = f"{'created' if before is None else 'replaced'} {path}, {lines(count)}{note}"
        return ToolResult(context.show(said, "head"), facts={"edits": 1.0})
