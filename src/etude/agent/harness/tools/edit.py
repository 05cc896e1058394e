"""Replace one place in a file, or all places of one text."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.edits.editing import Replace
from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.replacing import replace_in
from etude.agent.harness.tools.tool import ToolContext, ToolResult


class EditTool:
    """The search text must name one place. A failure changes nothing and shows the closest region."""

    name = "edit"
    parameters = (Parameter("path"), Parameter("old"), Parameter("new"), optional("all", "boolean"))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        one = Replace(arguments["old"], arguments["new"], arguments.get("all", False))
        return await replace_in(arguments["path"], [one], self.name, context)
