"""The tools of the nano preset: edit, grep, view, todo, test, shell and done. Their descriptions are the Markdown files in this folder."""

from __future__ import annotations

import asyncio
import re

from etude.agent.harness.edits.indentation import IndentationUnclear
from etude.agent.harness.edits.matching import NoUniqueMatch, replace
from etude.agent.harness.edits.syntax import syntax_damage
from etude.agent.harness.tools.tool import ToolContext, ToolError, ToolResult
from etude.agent.harness.truncation import Keep
from etude.agent.workspace.environment import NO_TERMINAL

# Run the task's tests. `pass`, or the last lines and `fail`; times and addresses are blotted out, so that a session
# replays byte for byte in a fresh sandbox.


# Enough for the tail of a test run; the rest would be cut by the tool cap anyway.
MAX_TEST_OUTPUT_BYTES = 1 << 16

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
            context.test_command, timeout_s=context.settings.test_timeout_s, max_output_bytes=MAX_TEST_OUTPUT_BYTES
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


# Run a command line in the sandbox. Full preset only.


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


# Read a file, as it is: no line numbers, so that every line shown can be copied into an edit.


class NanoView:
    """The whole file without its last newline; the sandbox's cap is applied by the caller, keeping the head."""

    name = "view"
    parameters = ("path",)
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        text = (await context.workspace.read(arguments["path"])).removesuffix("\n")
        return ToolResult(text or "empty file", reads=(arguments["path"],))


# Note a step to do, or tick one off. Opening items and leaving them undone is a counted bad habit.


class NanoTodo:
    """`add X` or `done X`."""

    name = "todo"
    parameters = ("text",)
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        if objection := context.todos.say(arguments["text"]):
            raise ToolError(objection)
        return ToolResult("ok")


# End the session with a final message. Calls after it in the same turn are not run.


class NanoDone:
    """The agent stops when this has been called; its result is never shown to the policy."""

    name = "done"
    parameters = ("message",)
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        return ToolResult(arguments["message"])


# Replace one place in a file, or append to it. A failed edit changes nothing and shows the closest region.
class NanoEdit:
    """An empty `old` appends `new` to the file, or creates it. Says when the match ignored blanks."""

    name = "edit"
    parameters = ("path", "old", "new")
    keep: Keep = "head"

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        path, old, new = arguments["path"], arguments["old"], arguments["new"]
        if not path:
            raise ToolError("no path")
        if not old:
            return await self._append(path, new, context)
        if old == new:
            raise ToolError("old and new are equal")
        text = await context.workspace.read(path)
        try:
            changed = replace(text, old, new)
        except NoUniqueMatch as miss:
            raise ToolError(f"{miss}; closest:\n{miss.hint}" if miss.hint else str(miss)) from miss
        except IndentationUnclear as unclear:
            raise ToolError(f"blanks differed, and {unclear}") from unclear
        if changed.loose and (wrong := await asyncio.to_thread(syntax_damage, path, text, changed.text)):
            raise ToolError(f"blanks differed, and the file would no longer parse: {wrong}")
        await context.workspace.write(path, changed.text)
        return ToolResult("ok, blanks differed" if changed.loose else "ok", facts=_facts(loose=changed.loose))

    async def _append(self, path: str, new: str, context: ToolContext) -> ToolResult:
        if not new:
            raise ToolError("nothing to add")
        text = await context.workspace.read(path) if await context.workspace.exists(path) else ""
        gap = "" if not text or text.endswith("\n") else "\n"
        end = "" if new.endswith("\n") else "\n"
        await context.workspace.write(path, f"{text}{gap}{new}{end}")
        return ToolResult("ok", facts=_facts(loose=False))


def _facts(*, loose: bool) -> dict[str, float]:
    return {"edits": 1.0, "loose_edits": float(loose)}
