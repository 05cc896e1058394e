"""See what a background job has said since the last look, and whether it still runs."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.workspace.jobs import BackgroundJob


class JobOutputTool:
    """Waits for its end if asked to, never longer than a command may take."""

    name = "job_output"
    parameters = (Parameter("job", "integer"), optional("wait_s", "integer", least=0))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        job = job_of(arguments["job"], context)
        look = await context.jobs.look(job, min(arguments.get("wait_s", 0), context.settings.max_command_s))
        text = look.output.decode(errors="replace").rstrip("\n")
        return ToolResult(await context.show_output(text, after=f"job {job.number}: {look.status}"))


def job_of(number: int, context: ToolContext) -> BackgroundJob:
    """Raises ToolError for a number that no job has."""
    try:
        return context.jobs[number]
    except KeyError:
        known = ", ".join(map(str, context.jobs.numbers)) or "none"
        raise ToolError(f"no job {number}; there are: {known}") from None
