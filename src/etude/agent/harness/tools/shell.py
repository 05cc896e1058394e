"""Run a command line where the last one ended: folder and exported variables stay. Or in the background, as a job."""

from __future__ import annotations

from typing import Any

from etude.agent.harness.tools.parameter import Parameter, optional
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult

# Read from the machine before cutting, and kept whole up to here.
MAX_OUTPUT_BYTES = 1 << 20


class ShellTool:
    """A command that takes too long is killed with all it started, also if it ignores signals; the session goes on."""

    name = "shell"
    parameters = (
        Parameter("command"),
        optional("timeout_s", "integer", least=1),
        optional("background", "boolean"),
        optional("why"),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        command = arguments["command"]
        if not command.strip():
            raise ToolError("empty command")
        if "\0" in command:
            raise ToolError("a command can't hold a zero byte")
        if arguments.get("background"):
            return await self._start(command, context)
        limit_s = min(arguments.get("timeout_s", context.settings.tool_timeout_s), context.settings.max_command_s)
        ran = await context.shell.run(context.workspace, command, timeout_s=limit_s, max_output_bytes=MAX_OUTPUT_BYTES)
        notes = [f"now in {ran.folder}"] if ran.moved else []
        if ran.result.timed_out:
            option = context.names.parameter(self.name, "background")
            notes.append(f"killed after {limit_s:g} s" + (f"; long work runs with {option}" if option else ""))
        elif ran.result.oom:
            notes.append("killed: out of memory")
        elif ran.result.rc:
            notes.append(f"exit {ran.result.rc}")
        if ran.left:
            notes.append(f"a process of this command still runs; its further output is in {ran.left}")
        output = ran.output.decode(errors="replace").rstrip("\n")
        text = output or ("" if notes else "ok, no output")
        shown = await context.show_output(text, after="\n".join(notes))
        return ToolResult(shown, facts={"shell_commands": 1.0, "shell_failures": float(ran.result.rc != 0)})

    async def _start(self, command: str, context: ToolContext) -> ToolResult:
        launch = await context.shell.background(context.workspace, command)
        try:
            job = await context.jobs.start(command, launch)
        except OSError as error:
            raise ToolError(f"it could not be started: {error}") from error
        look = context.names.call("job_output", job=job.number)
        said = f"job {job.number} runs" + (f"; see {look}" if look else "")
        return ToolResult(context.show(said, "head"), facts={"shell_commands": 1.0, "jobs_started": 1.0})
