"""End a background job and everything it started."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.job_output import job_of
from etude.agent.harness.tools.parameter import Parameter
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult


class JobKillTool:
    """SIGTERM, then SIGKILL."""

    name = "job_kill"
    parameters = (Parameter("job", "integer"),)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        job = job_of(arguments["job"], context)
        try:
            await context.jobs.kill(job)
        except OSError as error:
            raise ToolError(str(error)) from error
        look = await context.jobs.look(job)
        text = look.output.decode(errors="replace").rstrip("\n")
        return ToolResult(await context.show_output(text, after=f"job {job.number}: {look.status}"))
