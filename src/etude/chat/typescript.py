"""JSON-schema tools as the TypeScript that gpt-oss was trained on (the harmony format, "Function calling")."""

from __future__ import annotations

import json
from typing import Any, Sequence

_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def namespace(tools: Sequence[dict[str, Any]]) -> str:
    """The section `## functions` of a developer message. `tools` are {name, description, parameters}."""
    bodies = "".join(_function(tool) for tool in tools)
    return f"## functions\n\nnamespace functions {{\n\n{bodies}}} // namespace functions"


def _function(tool: dict[str, Any]) -> str:
    described = _comment(tool.get("description", ""), "")
    schema = tool.get("parameters") or {}
    if not schema.get("properties"):
        return f"{described}type {tool['name']} = () => any;\n\n"
    return f"{described}type {tool['name']} = (_: {_object(schema, '')}) => any;\n\n"


def _object(schema: dict[str, Any], indent: str) -> str:
    required = schema.get("required", ())
    lines = ["{\n"]
    for name, field in schema.get("properties", {}).items():
        lines.append(_comment(field.get("description", ""), indent))
        mark = "" if name in required else "?"
        default = f" // default: {_default(field)}" if "default" in field else ""
        lines.append(f"{indent}{name}{mark}: {_type(field, indent + '    ')},{default}\n")
    return "".join(lines) + indent[:-4] + "}"


def _type(schema: dict[str, Any], indent: str) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(word, ensure_ascii=False) for word in schema["enum"])
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(_type(branch, indent) for branch in branches)
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_type({**schema, "type": one}, indent) for one in kind)
    if kind == "array":
        inner = _type(schema.get("items") or {}, indent)
        return f"({inner})[]" if " | " in inner else f"{inner}[]"
    if kind == "object":
        return _object(schema, indent) if schema.get("properties") else "object"
    return _PLAIN.get(str(kind), "any")


def _default(schema: dict[str, Any]) -> str:
    value = schema["default"]
    return value if isinstance(value, str) and "enum" in schema else json.dumps(value, ensure_ascii=False)


def _comment(text: str, indent: str) -> str:
    return "".join(f"{indent}// {line}\n" for line in text.split("\n")) if text else ""
