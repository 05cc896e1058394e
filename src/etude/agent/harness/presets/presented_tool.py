"""A tool as a preset presents it: another name, other parameter names, fewer parameters, the same implementation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from etude.agent.harness.presets.arguments import ArgumentError, check
from etude.agent.harness.tools.names import ToolNames
from etude.agent.harness.tools.parameter import Parameter, object_schema
from etude.agent.harness.tools.tool import Implementation, ToolContext, ToolResult
from etude.agent.harness.truncation import Keep
from etude.agent.metrics.facts import MALFORMED

_SLOT = re.compile(r"\{(tool\.)?([a-z_]+(?:\.[a-z_]+)?)\}")


class PresentationError(Exception):
    """A preset's data does not fit the implementation; the message names both."""


@dataclass(frozen=True)
class PresentedTool:
    """A `Tool`. `presented` is from canonical path ("edits.old") to the name shown; what isn't there isn't offered. `fixed` are
    canonical arguments that the preset gives itself. `wording` is the folder of older descriptions, "" for the present ones. `text` is a
    description in place of the one next to the code."""

    name: str
    implementation: Implementation
    presented: Mapping[str, str]
    fixed: Mapping[str, Any]
    wording: str = ""
    text: str = ""
    keep: Keep = "head"  # for failures; answers are cut by the tool

    @cached_property
    def shape(self) -> tuple[Parameter, ...]:
        """Its parameters as presented. Raises PresentationError."""
        known = {path for one in self.implementation.parameters for path in _paths(one)}
        if strange := set(self.presented) - known:
            raise PresentationError(f"{self.name}: {self.implementation.name} has no parameter {min(strange)}")
        shape = tuple(
            _offered(one, self.presented, one.name)
            for one in self.implementation.parameters
            if one.name in self.presented
        )
        for one in self.implementation.parameters:
            if one.required and one.name not in self.presented and one.name not in self.fixed:
                raise PresentationError(
                    f"{self.name}: {self.implementation.name} needs {one.name}; present it or fix it"
                )
        return shape

    @property
    def parameters(self) -> list[str]:
        return [one.name for one in self.shape]

    def schema(self, names: ToolNames) -> dict[str, Any]:
        """The function schema for policies that read descriptions."""
        function = {
            "name": self.name,
            "description": self.text or describe(self.implementation, names, self.wording),
            "parameters": object_schema(self.shape),
        }
        return {"type": "function", "function": function}

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Arguments that don't fit are a malformed call, as with tools that a format checks (the counters and feedback read it)."""
        try:
            checked = check(self.shape, arguments, strict=context.settings.strict_arguments)
        except ArgumentError as bad:
            return ToolResult(f"{self.name}: {bad}", failed=True, facts={MALFORMED: 1.0})
        values = {**self.fixed, **self._canonical(checked.values)}
        result = await self.implementation.run(values, context)
        return replace(result, facts={**result.facts, "bent_arguments": float(checked.bent)})

    def _canonical(self, values: dict[str, Any]) -> dict[str, Any]:
        back = {shown: path for path, shown in self.presented.items() if "." not in path}
        return {back[name]: self._inner(back[name], value) for name, value in values.items()}

    def _inner(self, path: str, value: Any) -> Any:
        """The items of a list of objects with their canonical names."""
        back = {shown: inner.split(".")[1] for inner, shown in self.presented.items() if inner.startswith(f"{path}.")}
        if not back or not isinstance(value, list):
            return value
        return [{back[name]: one for name, one in item.items()} for item in value]


def describe(implementation: Implementation, names: ToolNames, wording: str = "") -> str:
    """The Markdown next to the code, or in its folder `wording`, with this preset's names in it; a line that names what isn't offered is
    left out."""
    module = type(implementation).__module__.rsplit(".", 1)[1]
    text = (Path(__file__).parent.parent / "tools" / wording / f"{module}.md").read_text(encoding="utf-8").strip()
    rows = []
    for row in text.split("\n"):
        slots = {match[0]: _named(match, implementation, names) for match in _SLOT.finditer(row)}
        if all(slots.values()):
            for slot, name in slots.items():
                row = row.replace(slot, name)
            rows.append(row)
    return "\n".join(rows)


def _named(match: re.Match[str], implementation: Implementation, names: ToolNames) -> str:
    return names.tool(match[2]) if match[1] else names.parameter(implementation.name, match[2])


def _paths(parameter: Parameter, path: str = "") -> list[str]:
    path = path or parameter.name
    inner = parameter.item.fields if parameter.item is not None else ()
    return [path, *(f"{path}.{field.name}" for field in inner)]


def _offered(parameter: Parameter, presented: Mapping[str, str], path: str) -> Parameter:
    """Renamed, without the fields that aren't presented."""
    item = parameter.item
    if item is not None and item.fields:
        fields = tuple(
            replace(field, name=presented[f"{path}.{field.name}"])
            for field in item.fields
            if f"{path}.{field.name}" in presented
        )
        item = replace(item, fields=fields)
    return replace(parameter, name=presented[path], item=item)
