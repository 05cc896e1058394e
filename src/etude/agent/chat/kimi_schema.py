"""Kimi K2.5 declares tools as TypeScript, and its rules know no schema that says neither a type nor a choice: MCP servers and
agents send such ones, for a value of any kind. They are given the type that an empty schema has there. Nothing else changes."""

from __future__ import annotations

from typing import Any

_KNOWN = ("$ref", "anyOf", "enum", "type")


def typed_tools(tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same functions, every schema with a type."""
    return [{**tool, "function": {**tool["function"], **_parameters(tool["function"])}} for tool in tools]


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    return {"parameters": _typed(function["parameters"])} if "parameters" in function else {}


def _typed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for choice in ("oneOf", "allOf"):  # all it can say of them; what the values must fulfil stays the tool's to check
        if choice in made and not any(key in made for key in _KNOWN):
            made["anyOf"] = made.pop(choice)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(made.get(key), dict):
            made[key] = {name: _typed(inner) for name, inner in made[key].items()}
    for key in ("items", "additionalProperties"):
        if key in made:
            made[key] = _typed(made[key])
    if isinstance(made.get("anyOf"), list):
        made["anyOf"] = [_typed(inner) for inner in made["anyOf"]]
    if "properties" in made and not any(key in made for key in _KNOWN):
        made["type"] = "object"
    return made if not made or any(key in made for key in _KNOWN) else {**made, "type": "any"}
