"""What a tool is: a name, a schema, a description, and one coroutine over the workspace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Mapping, Protocol

from etude.agent.harness.lint.lints import LintRunner
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.names import ToolNames
from etude.agent.harness.tools.parameter import Parameter
from etude.agent.harness.truncation import FinalText, Keep, OutputLimits, Remedy, fits, show
from etude.agent.metrics.todo import TodoList
from etude.agent.workspace.jobs import Jobs
from etude.agent.workspace.search import Searcher
from etude.agent.workspace.shell_state import ShellState
from etude.agent.workspace.workspace import Workspace


class ToolError(Exception):
    """The model's doing: the message becomes the tool's answer and counts as a failed call."""


@dataclass
class ToolContext:
    """What a call may use: the session's workspace and settings, its state, and services outside of it.

    `todos` lives in the harness, not in the sandbox, so that a self-summary can restore it. `names` is how this preset calls
    things, for answers that say what to do next.
    """

    workspace: Workspace
    settings: HarnessSettings
    test_command: tuple[str, ...]
    todos: TodoList = field(default_factory=TodoList)
    names: ToolNames = field(default_factory=ToolNames)
    services: AgentServices = field(default_factory=AgentServices)
    shell: ShellState = field(default_factory=ShellState)
    jobs: Jobs = field(init=False)
    lints: LintRunner = field(init=False)
    searcher: Searcher = field(init=False)
    outputs: int = 0  # whole outputs kept so far; names the next

    def __post_init__(self) -> None:
        self.jobs = Jobs(self.workspace)
        self.searcher = Searcher(self.workspace)
        self.lints = LintRunner(self.workspace, self.settings.tool_timeout_s)

    @property
    def limits(self) -> OutputLimits:
        return OutputLimits(self.settings.max_tool_lines, self.settings.max_tool_bytes)

    def show(
        self, text: str, keep: Keep, *, remedy: Remedy | None = None, before: str = "", after: str = ""
    ) -> FinalText:
        """A finished answer within this session's limits."""
        return show(text, self.limits, keep, remedy=remedy, before=before, after=after)

    async def show_output(self, text: str, *, before: str = "", after: str = "") -> FinalText:
        """A command's output: head and tail within the limits, the whole of it kept where `read` and the shell can get it."""
        if fits(text, self.limits):
            return self.show(text, "both", before=before, after=after)
        self.outputs += 1
        place = await self.workspace.keep_output(f"{self.outputs}.txt", text.encode("utf-8", "replace"))

        def remedy(kept: int, dropped: int) -> str:
            call = self.names.call("read", path=place, offset=kept + 1)
            return f"the whole output is {place}" + (f", continue with {call}" if call else "") if place else ""

        return self.show(text, "both", remedy=remedy, before=before, after=after)

    async def close(self) -> None:
        """End what the session left running."""
        await self.jobs.close()


@dataclass(frozen=True)
class ToolResult:
    """`text` goes to the model as it is if it is `FinalText`, else cut to the limits. `facts` are numbers for the hygiene counters,
    `reads` files whose text was shown. What an edit wrote, the workspace's journal tells.
    """

    text: str
    failed: bool = False
    facts: Mapping[str, float] = field(default_factory=dict)
    reads: tuple[str, ...] = ()


class Implementation(Protocol):
    """What a tool does, whatever a preset calls it: parameters by their canonical names, checked before `run` sees them."""

    @property
    def name(self) -> str: ...
    @property
    def parameters(self) -> tuple[Parameter, ...]: ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Raises ToolError and WorkspaceError for what the model did wrong; infra errors pass through."""
        ...


class Tool(Protocol):
    """A tool of the string presets has named strings, all required, in the order of the schema; a skinned one has a schema."""

    @property
    def name(self) -> str: ...
    @property
    def keep(self) -> Keep:
        """Which end of a too long answer stays."""
        ...

    @property
    def parameters(self) -> Collection[str]: ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Raises ToolError for what the model did wrong; infra errors pass through."""
        ...


def schema(tool: Tool, described: bool) -> dict[str, Any]:
    """The function schema of a tool with string arguments; descriptions only where a policy reads them."""
    properties = {name: {"type": "string"} for name in tool.parameters}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(tool.parameters),
        "additionalProperties": False,
    }
    description = {"description": describe(tool.name)} if described else {}
    return {"type": "function", "function": {"name": tool.name, **description, "parameters": parameters}}


@cache
def describe(name: str) -> str:
    """The Markdown next to the code of a tool with string arguments."""
    return (Path(__file__).parent / "nano" / f"{name}.md").read_text(encoding="utf-8").strip()
