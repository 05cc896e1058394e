"""Arguments of the formats that write each one as untyped text between tags, read exactly as they were written.

The declared type decides: text stays verbatim, indentation included (an edit copies it), all else must be JSON. The package's
own readers strip the text, which would change the lines an edit looks for.
"""

from __future__ import annotations

import re
from typing import Any, Sequence

from etude.agent.chat.families import Arguments
from etude.agent.chat.hub_tokenizer import HubTokenizer
from etude.core.trace.plain_json import parse

# How a format's parameters and calls are written: what opens a name, what ends it, what closes the value, and what may follow.
# A value ends where one of these follows, so that it may contain the closing tag itself.
_PARAMETER = ("<parameter=", ">", "</parameter>", re.compile(r"\s*(?:<parameter=|</function>|\Z)"))
_INVOKED = ('<parameter name="', '">', "</parameter>", re.compile(r'\s*(?:<parameter name="|</invoke>|\Z)'))
_INVOKE = ('<invoke name="', '">', "</invoke>", re.compile(r'\s*(?:<invoke name="|\Z)'))
_Tags = tuple[str, str, str, re.Pattern[str]]
_CONSTANTS = {"true": True, "false": False, "none": None, "null": None}  # templates spell them as Python or as JSON


class MalformedArguments(ValueError):
    """Arguments that break the format, or a value that is not of the declared type; says which."""


def texts(kind: Arguments, raw: str, ids: Sequence[int], tokenizer: HubTokenizer) -> list[dict[str, str]]:
    """The arguments of each call in one block, as written: `raw` is the block's text, `ids` its tokens."""
    if kind == "arg_value":
        return [_tagged(ids, tokenizer)]
    if kind == "invoke":
        return [dict(_pairs(_INVOKED, body)) for _, body in _pairs(_INVOKE, raw)]
    return [{key: _unwrapped(value) for key, value in _pairs(_PARAMETER, raw)}]


def typed(values: dict[str, str], name: str, tools: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The values as the tool `name` declares them; undeclared ones are JSON if they can be, else text."""
    declared = next((tool["function"] for tool in tools if tool["function"]["name"] == name), {})
    properties = declared.get("parameters", {}).get("properties", {})
    return {key: _value(key, text, _types(properties.get(key))) for key, text in values.items()}


def _pairs(tags: _Tags, text: str) -> list[tuple[str, str]]:
    """(name, body) of each element, read once from front to back: a turn that repeats itself costs no more than its length."""
    opening, named, closing, follows = tags
    found: list[tuple[str, str]] = []
    at = text.find(opening)
    while at >= 0:
        border = text.find(named, at)
        stop = text.find(closing, border) if border >= 0 else -1
        while stop >= 0 and not follows.match(text, stop + len(closing)):
            stop = text.find(closing, stop + 1)
        if stop < 0:
            raise MalformedArguments(f"{opening}... has no end")
        found.append((text[at + len(opening) : border], text[border + len(named) : stop]))
        at = text.find(opening, stop + len(closing))
    return found


def _unwrapped(value: str) -> str:
    """Without the line break at either end, which the format writes around a value."""
    return value.removeprefix("\n").removesuffix("\n")


def _tagged(ids: Sequence[int], tokenizer: HubTokenizer) -> dict[str, str]:
    markers = tokenizer.convert_tokens_to_ids(["<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"])
    places = [i for i, token in enumerate(ids) if token in markers]
    if [ids[i] for i in places] != markers * (len(places) // 4):
        raise MalformedArguments("an argument is not closed")
    quads = zip(*[iter(places)] * 4, strict=True)
    return {tokenizer.decode(ids[a + 1 : b]).strip(): tokenizer.decode(ids[c + 1 : d]) for a, b, c, d in quads}


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
        return parse(stripped)
    except ValueError as error:
        if types and "string" not in types:
            wanted = " or ".join(sorted(types))
            raise MalformedArguments(f"{key} is {stripped[:40]!r}, which is no {wanted}") from error
        return text
