"""Encodings and time zones: what only shows outside plain ASCII and outside one's own zone."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import (
    arguments,
    callee,
    field,
    keyword,
    replace_node,
    without_argument,
)
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("encoding")
CODECS = {
    "utf-8": "latin-1",
    "utf8": "latin-1",
    "latin-1": "utf-8",
    "latin1": "utf-8",
    "ascii": "utf-8",
    "utf-8-sig": "utf-8",
}
ERRORS = {
    "strict": "ignore",
    "replace": "ignore",
    "ignore": "strict",
    "surrogateescape": "replace",
    "backslashreplace": "replace",
}
JS_CODECS = {
    "utf8": "latin1",
    "utf-8": "latin1",
    "latin1": "utf8",
    "binary": "utf8",
    "base64": "base64url",
    "hex": "base64",
}


def _quoted(code: Code, node: Node) -> str:
    return code.text(node)[1:-1]


@FAMILY.operator("python", "other-codec", "string", weight=3)
def codec(code: Code, node: Node) -> Iterable[Change]:
    text = code.text(node)
    if node.parent.type in ("argument_list", "keyword_argument", "default_parameter"):
        for known in (CODECS, ERRORS):
            if (word := _quoted(code, node).lower()) in known:
                yield replace_node(node, f"{text[0]}{known[word]}{text[-1]}")


@FAMILY.operator("javascript", "other-codec", "string", weight=3)
def js_codec(code: Code, node: Node) -> Iterable[Change]:
    text = code.text(node)
    if node.parent.type == "arguments" and _quoted(code, node) in JS_CODECS:
        yield replace_node(node, f"{text[0]}{JS_CODECS[_quoted(code, node)]}{text[-1]}")


@FAMILY.operator("python", "forgotten-codec", "call", weight=3)
def unsaid(code: Code, node: Node) -> Iterable[Change]:
    """What is not said is taken from the locale (open) or strict (errors)."""
    if field(node, "arguments").type == "argument_list":
        for name in ("encoding", "errors", "newline", "ensure_ascii"):
            if (option := keyword(code, node, name)) is not None:
                yield without_argument(code, node, option)


@FAMILY.operator("python", "bytes-for-letters", "call", weight=2)
def lengths(code: Code, node: Node) -> Iterable[Change]:
    """The length of a text counted in bytes, and the other way round."""
    args = arguments(node) if field(node, "arguments").type == "argument_list" else []
    if (
        callee(code, node) == "len"
        and len(args) == 1
        and args[0].type == "call"
        and callee(code, args[0]) in ("encode", "decode")
    ):
        yield replace_node(args[0], code.text(field(field(args[0], "function"), "object")))


@FAMILY.operator("python", "forgotten-zone", "call", weight=4)
def zoneless(code: Code, node: Node) -> Iterable[Change]:
    if field(node, "arguments").type != "argument_list":
        return
    for name in ("tz", "tzinfo"):
        if (options := keyword(code, node, name)) is not None:
            yield without_argument(code, node, options)
    options = arguments(node)
    if callee(code, node) in ("now", "fromtimestamp", "astimezone") and options:
        zone = options[-1]
        if "utc" in code.text(zone).lower() or "tz" in code.text(zone).lower():
            yield without_argument(code, node, zone)


@FAMILY.operator("python", "local-for-universal", "attribute", weight=4)
def local(code: Code, node: Node) -> Iterable[Change]:
    replacements = {
        "gmtime": "localtime",
        "localtime": "gmtime",
        "utcnow": "now",
        "utcfromtimestamp": "fromtimestamp",
        "timegm": "mktime",
    }
    name = field(node, "attribute")
    if code.text(name) in replacements:
        yield replace_node(name, replacements[code.text(name)])


@FAMILY.operator("javascript", "local-for-universal", "property_identifier", weight=4)
def js_local(code: Code, node: Node) -> Iterable[Change]:
    text = code.text(node)
    if text.startswith(("getUTC", "setUTC")):
        yield replace_node(node, text[:3] + text[6:])
    elif text in ("getFullYear", "getMonth", "getDate", "getHours", "getDay"):
        yield replace_node(node, f"getUTC{text[3:]}")
