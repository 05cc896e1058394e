"""Tools as gpt-oss sees them: the documented example, and the quirks of the reference encoder."""

from __future__ import annotations

from typing import Any

import pytest

from etude.agent.chat.harmony import namespace

# The example of the harmony guide, "Function calling".
GUIDE = """## functions

namespace functions {

// Gets the location of the user.
type get_location = () => any;

// Gets the current weather in the provided location.
type get_current_weather = (_: {
// The city and state, e.g. San Francisco, CA
location: string,
format?: "celsius" | "fahrenheit", // default: celsius
}) => any;

// Gets the current weather in the provided list of locations.
type get_multiple_weathers = (_: {
// List of city and state, e.g. ["San Francisco, CA", "New York, NY"]
locations: string[],
format?: "celsius" | "fahrenheit", // default: celsius
}) => any;

} // namespace functions"""

UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}


def tool(name: str, description: str, properties: dict[str, Any] | None, *required: str) -> dict[str, Any]:
    parameters = None if properties is None else {"type": "object", "properties": properties, "required": [*required]}
    return {"name": name, "description": description, "parameters": parameters}


def test_the_guides_example_is_written_as_in_the_guide() -> None:
    city = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    cities = {
        "type": "array",
        "items": {"type": "string"},
        "description": 'List of city and state, e.g. ["San Francisco, CA", "New York, NY"]',
    }
    tools = [
        tool("get_location", "Gets the location of the user.", None),
        tool(
            "get_current_weather",
            "Gets the current weather in the provided location.",
            {"location": city, "format": UNIT},
            "location",
        ),
        tool(
            "get_multiple_weathers",
            "Gets the current weather in the provided list of locations.",
            {"locations": cities, "format": UNIT},
            "locations",
        ),
    ]
    assert namespace(tools) == GUIDE


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        ({"type": "integer"}, "x?: number,"),
        ({"type": ["integer", "null"]}, "x?: number | null,"),
        ({"type": "string", "nullable": True}, "x?: string | null,"),
        ({"type": "integer", "enum": [1, 2]}, "x?: number,"),
        ({"type": "array"}, "x?: Array<any>,"),
        ({"anyOf": [{"type": "string"}]}, "x?: any,"),
        ({"type": "string", "default": "a b"}, 'x?: string, // default: "a b"'),
        ({"type": "array", "items": {"type": "integer"}, "default": [1, 2]}, "x?: number[], // default: [1,2]"),
        ({"type": "string", "title": "T", "examples": ["e"]}, '// T\n//\n// Examples:\n// - "e"\nx?: string,'),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "x?: {\n    a?: string,\n    },"),
        ({"oneOf": [{"type": "string", "default": "d"}, {"type": "number", "description": "n"}]},
         'x?:\n | string // default: "d"\n | number // n\n,'),
    ],
)  # fmt: skip
def test_types_are_written_as_the_reference_writes_them(schema: dict[str, Any], written: str) -> None:
    assert namespace([tool("f", "", {"x": schema})]) == (
        f"## functions\n\nnamespace functions {{\n\ntype f = (_: {{\n{written}\n}}) => any;\n\n}} // namespace functions"
    )
