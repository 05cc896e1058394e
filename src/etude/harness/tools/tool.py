"""What a tool is: a name, a JSON schema, a description, and one coroutine over the workspace."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Mapping, Protocol

from etude.harness.settings import HarnessSettings
from etude.harness.todo import TodoList
from etude.harness.truncation import Keep
from etude.harness.workspace import Workspace


class ToolError(Exception):
    """The model's doing: the message becomes the tool's answer and counts as a failed call."""


@dataclass
class ToolContext:
    """What a call may use. `todos` lives in the harness, not in the sandbox, so that a self-summary can restore it."""

    workspace: Workspace
    settings: HarnessSettings
    test_command: tuple[str, ...]
    todos: TodoList = field(default_factory=TodoList)


@dataclass(frozen=True)
class ToolResult:
    """`text` goes to the model as it is. `facts` are numbers for the hygiene counters."""

    text: str
    failed: bool = False
    facts: Mapping[str, float] = field(default_factory=dict)


class Tool(Protocol):
    """Parameters are strings, all required, in the order of the schema."""

    name: str
    keep: Keep  # which end of a too long answer stays

    @property
    def parameters(self) -> tuple[str, ...]: ...

    async def run(self, arguments: dict[str, str], context: ToolContext) -> ToolResult:
        """Raises ToolError for what the model did wrong; infra errors pass through."""
        ...


def schema(tool: Tool, described: bool) -> dict[str, Any]:
    """The function schema that text policies are given; descriptions only where a policy reads them."""
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
    """The Markdown beside the tool's code."""
    return (Path(__file__).parent / f"{name}.md").read_text(encoding="utf-8").strip()
