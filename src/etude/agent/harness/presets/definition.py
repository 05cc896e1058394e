"""A preset of a person's own package, by import path: which tools it offers, under which names, and its prompts (docs/extending/presets.md)."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from etude.agent.harness.presets.presented_tool import PresentationError, PresentedTool
from etude.agent.harness.tools.parameter import Parameter
from etude.agent.harness.tools.tool import Implementation
from etude.core.plugins import PluginError, import_object, is_import_path, module_digest


@dataclass(frozen=True)
class OfferedTool:
    """One tool. `tool`: the name of a built-in implementation, or an object that follows `Implementation`. `name`: what the policy calls it.
    `parameters`: canonical name to shown name; None: all, under their canonical names. `fixed`: arguments that the preset gives itself.
    `description`: what the policy reads; "" for the text of the built-in implementation. `reads_only`: calls change nothing, so that several
    may run concurrently."""

    tool: str | Implementation
    name: str
    parameters: Mapping[str, str] | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""
    reads_only: bool = False


@dataclass(frozen=True)
class PresetDefinition:
    """`tools` in the order in which they are declared. `summary_query` asks for a self-summary."""

    tools: tuple[OfferedTool, ...]
    system: str
    summary_query: str


def read_definition(path: str, off: Collection[str], known: Mapping[str, Implementation]) -> list[PresentedTool]:
    """The tools of the definition at an import path, without those of the names `off`. Raises PluginError."""
    return [
        _presented(path, row, known) for row in definition(path).tools if not {row.name, _implementation(row)} & {*off}
    ]


def definition(path: str) -> PresetDefinition:
    """Raises PluginError where the object at an import path is no definition."""
    found: Any = import_object(path)
    if not isinstance(found, PresetDefinition):
        raise PluginError(
            f"{path} is {type(found).__name__}; a preset is a PresetDefinition of etude.agent.harness.presets.definition "
            "(docs/extending/presets.md)"
        )
    if not found.tools or not all(isinstance(row, OfferedTool) for row in found.tools):
        raise PluginError(f"{path}: its tools are {found.tools!r}; a preset has at least one OfferedTool")
    names = [row.name for row in found.tools]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PluginError(f"{path}: two of its tools have the name {twice[0]!r}; give each a name of one tool")
    return found


def sources(path: str) -> dict[str, str]:
    """By module, the digests of the sources that decide what a policy sees: of the definition, and of its tools outside of Etude."""
    modules = {path.partition(":")[0]}
    modules |= {type(row.tool).__module__ for row in definition(path).tools if not isinstance(row.tool, str)}
    return {module: module_digest(module) for module in sorted(modules) if not module.startswith("etude.")}


def require_allowed(preset: str, allowed: Collection[str], file: str, remedy: str) -> None:
    """Raises PluginError for a preset by import path that only a file names: code is never imported because of that."""
    if is_import_path(preset) and preset not in allowed:
        raise PluginError(
            f"{file} names the preset {preset}, whose code runs on this machine. If you trust that module, {remedy}"
        )


def _implementation(row: OfferedTool) -> str:
    return row.tool if isinstance(row.tool, str) else row.tool.name


def _presented(path: str, row: OfferedTool, known: Mapping[str, Implementation]) -> PresentedTool:
    implementation = known.get(row.tool) if isinstance(row.tool, str) else row.tool
    if implementation is None:
        raise PluginError(f"{path}: {row.name} is the tool {row.tool!r}; there are {', '.join(known)}")
    if not isinstance(row.tool, str):
        _check(path, row, implementation, known)
    shown = {one.name: one.name for one in implementation.parameters} if row.parameters is None else row.parameters
    tool = PresentedTool(row.name, implementation, _paths(implementation, shown), row.fixed, text=row.description)
    try:
        tool.shape  # noqa: B018 - raises where the names do not fit the implementation
    except PresentationError as error:
        raise PluginError(f"{path}: {error}") from error
    return tool


def _check(path: str, row: OfferedTool, tool: Implementation, known: Mapping[str, Implementation]) -> None:
    """Raises PluginError for an object that does not follow `Implementation`."""
    name, parameters = getattr(tool, "name", None), getattr(tool, "parameters", None)
    if not isinstance(name, str) or name in known:
        raise PluginError(f"{path}: the tool {row.name} has the name {name!r}; it needs one that no built-in tool has")
    if not isinstance(parameters, tuple) or not all(isinstance(one, Parameter) for one in parameters):
        raise PluginError(f"{path}: the tool {row.name} has the parameters {parameters!r}; give a tuple of Parameter")
    if isinstance(tool, type) or not inspect.iscoroutinefunction(getattr(tool, "run", None)):
        raise PluginError(f"{path}: the tool {row.name} has no method `async def run(arguments, context)`")
    if not row.description:
        raise PluginError(f"{path}: the tool {row.name} has no description, and a policy reads nothing else of it")


def _paths(implementation: Implementation, shown: Mapping[str, str]) -> dict[str, str]:
    """With the fields of lists of objects, under their canonical names where they are not renamed."""
    inner = {
        f"{one.name}.{field.name}": field.name
        for one in implementation.parameters
        if one.name in shown and one.item is not None
        for field in one.item.fields
    }
    return {**inner, **shown}
