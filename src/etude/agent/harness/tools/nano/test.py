"""Run the task's tests. `pass`, or the last lines and `fail`; times and addresses are blotted out, so that a session
replays byte for byte in a fresh sandbox."""

from __future__ import annotations

import re

from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep

# Enough for the tail of a test run; the rest would be cut by the tool cap anyway.
MAX_OUTPUT_BYTES = 1 << 16

_SECONDS = re.compile(r"\b\d+\.\d+ ?s(econds)?\b")
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")


class NanoTest:
    """`facts["passed"]` tells the counters; the grade is decided elsewhere, in a fresh sandbox (promise 9)."""

    name = "test"
    parameters = ()
    keep: Keep = "tail"
    __test__ = False  # not a test class, whatever a collector thinks of its name

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        if not context.test_command:
            raise ToolError("no tests here")
        result = await context.workspace.run(
            context.test_command, timeout_s=context.settings.test_timeout_s, max_output_bytes=MAX_OUTPUT_BYTES
        )
        if result.rc == 0 and not result.timed_out:
            return ToolResult("pass", facts={"passed": 1.0})
        if result.timed_out:  # how far the output got is the machine's speed: it would replay otherwise
            return ToolResult("fail: timed out", facts={"passed": 0.0})
        if result.oom:
            reason = "fail: out of memory"
        else:
            reason = "fail"
        output = stable((result.out + result.err).decode(errors="replace")).strip("\n")
        return ToolResult(f"{output}\n{reason}" if output else reason, facts={"passed": 0.0})


def stable(text: str) -> str:
    """Without what differs between two runs of the same tests: durations and object addresses."""
    return _ADDRESS.sub("0x", _SECONDS.sub("0s", text))
