"""JSON-schema tools as the TypeScript that gpt-oss was trained on, as the harmony reference encoder writes it.

Its quirks are part of what the model has seen and are kept: the closing brace of an inner object is indented as deep as its fields, an
inner object's description is written twice, only strings have their `enum` shown, and `anyOf` is unknown to it.
"""

from __future__ import annotations

import json
from typing import Any, Sequence

_PLAIN = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}


def namespace(tools: Sequence[dict[str, Any]]) -> str:
    """The section `## functions` of a developer message. `tools` are {name, description, parameters or None}."""
    bodies = "".join(_function(tool) for tool in tools)
    return f"## functions\n\nnamespace functions {{\n\n{bodies}}} // namespace functions"


def _function(tool: dict[str, Any]) -> str:
    said = "".join(f"// {line}\n" for line in tool["description"].splitlines())
    given = "" if tool["parameters"] is None else f"_: {_type(tool['parameters'], '')}"
    return f"{said}type {tool['name']} = ({given}) => any;\n\n"


def _type(schema: dict[str, Any], indent: str) -> str:
    if "oneOf" in schema:
        return "".join(f"\n{indent} | {_variant(one, indent)}{_after(one)}" for one in schema["oneOf"])
    kind = schema.get("type")
    if isinstance(kind, list) and kind:
        return " | ".join("number" if one == "integer" else str(one) for one in kind)
    if kind == "object":
        return _object(schema, indent)
    if kind == "array":
        return f"{_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
    words = [word for word in schema.get("enum") or () if isinstance(word, str)]
    if kind == "string" and words:
        return " | ".join(f'"{word}"' for word in words)
    return _PLAIN.get(str(kind), "any")


def _object(schema: dict[str, Any], indent: str) -> str:
    said = f"{indent}// {schema['description']}\n" if "description" in schema else ""
    required = schema.get("required", ())
    fields = "".join(
        _field(name, field, "" if name in required else "?", indent)
        for name, field in schema.get("properties", {}).items()
    )
    return f"{said}{{\n{fields}{indent}}}"


def _field(name: str, schema: dict[str, Any], mark: str, indent: str) -> str:
    notes = [schema["title"], ""] if "title" in schema else []
    variants = schema.get("oneOf")
    said = schema.get("description")
    if said is not None and not (variants and variants[0].get("description") == said):
        notes.append(said)
    if schema.get("examples"):
        notes += ["Examples:", *(f'- "{one}"' for one in schema["examples"] if isinstance(one, str))]
    if variants and "default" in schema:
        notes.append(_default(schema))
    above = "".join(f"{indent}// {note}\n" if note else f"{indent}//\n" for note in notes)
    if not variants:
        default = f" // {_default(schema)}" if "default" in schema else ""
        return f"{above}{indent}{name}{mark}: {_variant(schema, indent + ' ')},{default}\n"
    lines = "".join(
        f"{indent} | {_variant(one, indent)}{_after(one, without=said, first=not i)}\n"
        for i, one in enumerate(variants)
    )
    return f"{above}{indent}{name}{mark}:\n{lines}{indent},\n"


def _variant(schema: dict[str, Any], indent: str) -> str:
    written = _type(schema, indent + "   ")
    return f"{written} | null" if schema.get("nullable") and "null" not in written else written


def _after(schema: dict[str, Any], *, without: str | None = None, first: bool = False) -> str:
    """The comment behind a variant; `without` is the comment above all of them, which the first one does not add to."""
    said = schema.get("description")
    notes = [said] if said is not None and said != without and not (first and without is not None) else []
    notes += [_default(schema)] if "default" in schema else []
    return f" // {' '.join(notes)}" if notes else ""


def _default(schema: dict[str, Any]) -> str:
    value = schema["default"]
    if isinstance(value, str):
        return f"default: {value}" if schema.get("enum") else f'default: "{value}"'
    return f"default: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
