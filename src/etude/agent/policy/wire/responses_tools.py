"""The tools of OpenAI responses as plain functions, and calls of them in the form the client declared.

In addition to functions the format knows tools in a namespace, and custom tools, whose input is text (Codex' apply_patch) and not JSON.
A model of ours sees functions alone: `NAMESPACE__NAME`, and a function of one text `input`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etude.agent.policy.wire.errors import WireError
from etude.agent.policy.wire.responses_types import ResponseItem
from etude.core.trace.message import Message, ToolCall
from etude.core.trace.plain_json import parse
from etude.core.trace.unicode import whole

# Run by the maker's server, and offered in addition to the client's own: a model that doesn't see one can't call it.
HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation")


@dataclass(frozen=True)
class Form:
    """How a client names a tool that is no plain function."""

    name: str
    namespace: str | None = None
    custom: bool = False


Forms = Mapping[str, Form]  # by the name that the model knows


@dataclass(frozen=True)
class Toolset:
    """What a client declared. `left_out` are types of tools that the maker's server would have run."""

    functions: tuple[dict[str, Any], ...]
    forms: Forms
    left_out: tuple[str, ...]


def toolset(tools: Sequence[dict[str, Any]]) -> Toolset:
    """Raises WireError, naming the tool, for one that is none of those."""
    functions: list[dict[str, Any]] = []
    forms: dict[str, Form] = {}
    left_out: list[str] = []
    for place, namespace, tool in _flat(tools):
        kind = str(tool.get("type"))
        if kind.startswith(HOSTED):
            left_out.append(kind)
            continue
        if kind not in ("function", "custom"):
            raise WireError(
                f"{place} is of type {kind!r}; functions, custom tools and namespaces of them can be declared"
            )
        if not isinstance(tool.get("name"), str):
            raise WireError(f"{place} has no name")
        name = _joined(namespace, tool["name"])
        if namespace or kind == "custom":
            forms[name] = Form(tool["name"], namespace, kind == "custom")
        functions.append({"type": "function", "function": _function(name, tool)})
    return Toolset(tuple(functions), forms, tuple(left_out))


def call_item(id: str, call: ToolCall, forms: Forms) -> ResponseItem:
    """A call of ours as the client's item."""
    form = forms.get(call.name, Form(call.name))
    common = {"id": id, "call_id": call.id, "name": form.name, "namespace": form.namespace, "status": "completed"}
    if form.custom:
        return ResponseItem(type="custom_tool_call", input=_input(call.arguments), **common)
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return ResponseItem(type="function_call", arguments=arguments, **common)


def call_message(item: ResponseItem, place: str) -> Message:
    """A client's item as a turn that calls. Raises WireError for one that doesn't say what is called."""
    custom = item.type == "custom_tool_call"
    try:
        arguments = {"input": whole(item.input or "")} if custom else whole(parse(item.arguments or "{}"))
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        problem = f"the arguments of {item.name} are no JSON object"
        return Message("assistant", whole(item.arguments or ""), problem=problem)
    if not item.call_id or not item.name:
        raise WireError(f"{place} is a {item.type} without call_id or name")
    return Message("assistant", calls=(ToolCall(item.call_id, _joined(item.namespace, item.name), arguments),))


def _flat(tools: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    for i, tool in enumerate(tools):
        if tool.get("type") != "namespace":
            yield f"tools[{i}]", None, tool
            continue
        inner, name = tool.get("tools"), tool.get("name")
        if not isinstance(name, str) or not isinstance(inner, list) or not all(isinstance(row, dict) for row in inner):
            raise WireError(f"tools[{i}] is a namespace without a name or a list of tools")
        for j, row in enumerate(inner):
            yield f"tools[{i}].tools[{j}]", name, row


def _joined(namespace: str | None, name: str) -> str:
    return f"{namespace}__{name}" if namespace else name


def _function(name: str, tool: dict[str, Any]) -> dict[str, Any]:
    parameters = tool.get("parameters") or {"type": "object", "properties": {}}
    if tool.get("type") == "custom":
        grammar = (tool.get("format") or {}).get("definition")
        input_schema = (
            {"type": "string", "description": f"Text of this grammar:\n{grammar}"} if grammar else {"type": "string"}
        )
        parameters = {"type": "object", "properties": {"input": input_schema}, "required": ["input"]}
    return {"name": name, "description": tool.get("description") or "", "parameters": parameters}


def _input(arguments: dict[str, Any]) -> str:
    """The text of a call of a custom tool; a model that gave something else hears from the client what is wrong with it."""
    given = arguments.get("input")
    return given if isinstance(given, str) and len(arguments) == 1 else json.dumps(arguments, ensure_ascii=False)
