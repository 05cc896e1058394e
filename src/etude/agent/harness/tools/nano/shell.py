"""Run a command line in the sandbox. Full preset only."""

from __future__ import annotations

from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep
from etude.agent.workspace.environment import NO_TERMINAL

# Read from the sandbox before cutting; a command that says more is cut there, without harm to the host.
MAX_OUTPUT_BYTES = 1 << 18


class NanoShell:
    """Standard output, then standard error; the exit status when it isn't zero."""

    name = "shell"
    parameters = ("command",)
    keep: Keep = "both"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        command = arguments["command"]
        if not command.strip():
            raise ToolError("empty command")
        result = await context.workspace.run(
            command,
            timeout_s=context.settings.tool_timeout_s,
            max_output_bytes=MAX_OUTPUT_BYTES,
            env=dict(NO_TERMINAL),
        )
        output = (result.out + result.err).decode(errors="replace").rstrip("\n")
        status = "timed out" if result.timed_out else f"exit {result.rc}" if result.rc else ""
        return ToolResult("\n".join(part for part in (output, status) if part) or "ok", facts={"shell_commands": 1.0})
