"""Several replacements in one file, all or none."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.edits.editing import Replace
from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.replacing import replace_in
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult

_EDIT = Parameter("edit", "object", fields=(Parameter("old"), Parameter("new"), optional("all", "boolean")))


class MultiEditTool:
    """Each edit sees the result of those before it. If one fails, none is made."""

    name = "multi_edit"
    parameters = (Parameter("path"), Parameter("edits", "array", item=_EDIT))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        edits = [Replace(one["old"], one["new"], one.get("all", False)) for one in arguments["edits"]]
        if not edits:
            raise ToolError("no edits were given; nothing was changed")
        return await replace_in(arguments["path"], edits, self.name, context)
