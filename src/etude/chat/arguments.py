"""Arguments of the formats that write each one as untyped text between tags, read exactly as they were written.

The declared type decides: text stays verbatim, indentation included (an edit copies it), all else must be JSON. The package's
own readers strip the text, which would change the lines an edit looks for.
"""

from __future__ import annotations

import json
import re
from typing import Any, Sequence

from etude.chat.families import Arguments
from etude.chat.hub_tokenizer import HubTokenizer

# A value ends where the next tag of the format follows, so that it may contain the closing tag itself.
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|</function>|\Z))", re.DOTALL)
_INVOKED = re.compile(
    r'<parameter name="([^"\n]+)">(.*?)</parameter>(?=\s*(?:<parameter name=|</invoke>|\Z))', re.DOTALL
)
_INVOKE = re.compile(r'<invoke name="([^"\n]+)">(.*?)</invoke>(?=\s*(?:<invoke name=|\Z))', re.DOTALL)
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}  # templates spell them as Python or as JSON


class Unreadable(ValueError):
    """Arguments that break the format, or a value that is not of the declared type; says which."""


def texts(kind: Arguments, raw: str, ids: Sequence[int], tokenizer: HubTokenizer) -> list[dict[str, str]]:
    """The arguments of each call in one block, as written: `raw` is the block's text, `ids` its tokens."""
    if kind == "arg_value":
        return [_tagged(ids, tokenizer)]
    if kind == "invoke":
        return [_pairs(_INVOKED, body, "<parameter name=") for _, body in _INVOKE.findall(raw)]
    return [_pairs(_PARAMETER, raw, "<parameter=")]


def typed(values: dict[str, str], name: str, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The values as the tool `name` declares them; undeclared ones are JSON if they can be, else text."""
    declared = next((tool["function"] for tool in tools if tool["function"]["name"] == name), {})
    properties = declared.get("parameters", {}).get("properties", {})
    return {key: _value(key, text, _types(properties.get(key))) for key, text in values.items()}


def _pairs(pattern: re.Pattern[str], text: str, opening: str) -> dict[str, str]:
    found = pattern.findall(text)
    if not found and opening in text:
        raise Unreadable("a parameter is not closed")
    return dict(found)


def _tagged(ids: Sequence[int], tokenizer: HubTokenizer) -> dict[str, str]:
    key, key_end, value, value_end = tokenizer.convert_tokens_to_ids(
        ["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
    )
    pairs: dict[str, str] = {}
    at = 0
    while key in ids[at:]:
        try:
            start = ids.index(key, at) + 1
            stop = ids.index(key_end, start)
            first = ids.index(value, stop) + 1
            last = ids.index(value_end, first)
        except ValueError as error:
            raise Unreadable("an argument is not closed") from error
        pairs[tokenizer.decode(ids[start:stop]).strip()] = tokenizer.decode(ids[first:last])
        at = last + 1
    return pairs


def _types(schema: Any) -> set[str]:
    """The JSON types a schema allows; empty if it says nothing."""
    if not isinstance(schema, dict):
        return set()
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    for branch in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        types |= _types(branch)
    if not types and "enum" in schema:
        types = {"string"} if all(isinstance(word, str) for word in schema["enum"]) else set()
    return types


def _value(key: str, text: str, types: set[str]) -> Any:
    if types == {"string"}:
        return text
    stripped = text.strip()
    if stripped.lower() in _CONSTANTS and (types & {"boolean", "null"} or not types):
        return _CONSTANTS[stripped.lower()]
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError) as error:
        if types and "string" not in types:
            wanted = " or ".join(sorted(types))
            raise Unreadable(f"{key} is {stripped[:40]!r}, which is no {wanted}") from error
        return text
