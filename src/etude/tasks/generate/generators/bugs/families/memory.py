"""What is kept: caches never emptied or keyed by too little, copies that are aliases, sentinels and None."""

from __future__ import annotations

import re
from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import (
    arguments,
    callee,
    field,
    lines_of,
    remove_statement,
    replace_node,
)
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("memory")
CACHE = re.compile(r"cache|memo|_seen|dirty|stale|invalidat|_hash\b|_len\b|expire", re.IGNORECASE)
EMPTYING = re.compile(r"\.(clear|pop|discard|remove|delete|cache_clear|popitem|invalidate|update)\(|\bdel\b|delete ")


@FAMILY.operator("python", "stale-cache", "expression_statement", "delete_statement", weight=5)
@FAMILY.operator("javascript", "stale-cache", "expression_statement", weight=5)
def stale(code: Code, node: Node) -> Iterable[Change]:
    text = code.text(node)
    if (
        CACHE.search(text)
        and len(text) < 120
        and (EMPTYING.search(text) or " = None" in text or " = {}" in text or "= null" in text)
    ):
        yield remove_statement(code, node)


@FAMILY.operator("python", "poor-key", "subscript", weight=2)
def poor_key(code: Code, node: Node) -> Iterable[Change]:
    """A key of several things loses one."""
    parts = node.children_by_field_name("subscript")
    if len(parts) > 1 and CACHE.search(code.text(field(node, "value"))):
        yield from ([(parts[0].start_byte, parts[-1].end_byte, code.text(one))] for one in parts)


@FAMILY.operator("python", "cached-method", "function_definition", weight=1, module_level=True)
def uncached(code: Code, node: Node) -> Iterable[Change]:
    """What depends on more than its arguments is remembered: a property read once and for all."""
    holder = node.parent
    if holder.type != "decorated_definition":
        return
    for one in holder.named_children:
        if one.type == "decorator" and code.text(one) in (
            "@lru_cache",
            "@functools.lru_cache(None)",
            "@cached_property",
        ):
            start, end = lines_of(code, one)
            yield [(start, end, "")]


@FAMILY.operator("python", "alias-for-copy", "call", weight=4)
def aliased(code: Code, node: Node) -> Iterable[Change]:
    function, name = field(node, "function"), callee(code, node)
    args = arguments(node) if field(node, "arguments").type == "argument_list" else []
    if name == "copy" and function.type == "attribute" and not args:
        yield replace_node(node, code.text(field(function, "object")))
    elif name in ("copy", "deepcopy") and len(args) == 1:
        yield replace_node(node, code.text(args[0]))
        if name == "deepcopy" and function.type == "identifier":
            yield replace_node(node, f"list({code.text(args[0])})")
    elif function.type == "identifier" and name in ("list", "dict", "set", "tuple", "bytearray") and len(args) == 1:
        if args[0].type in ("identifier", "attribute", "subscript"):
            yield replace_node(node, code.text(args[0]))


@FAMILY.operator("python", "alias-for-slice", "subscript", weight=3)
def unsliced(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "subscript")) == ":" and node.parent.type != "delete_statement":
        yield replace_node(node, code.text(field(node, "value")))


@FAMILY.operator("javascript", "alias-for-copy", "array", "object", "call_expression", weight=4)
def js_aliased(code: Code, node: Node) -> Iterable[Change]:
    if node.type == "call_expression":
        function = field(node, "function")
        if callee(code, node) in ("slice", "concat", "clone") and not arguments(node):
            yield replace_node(node, code.text(field(function, "object")))
        return
    inner = node.named_children
    if len(inner) == 1 and inner[0].type == "spread_element" and node.parent.type != "arrow_function":
        yield replace_node(node, code.text(inner[0].named_children[0]))


@FAMILY.operator("python", "truth-for-none", "comparison_operator", weight=5)
def truthy(code: Code, node: Node) -> Iterable[Change]:
    """`x is not None` becomes `x`: zero, nothing and empty things are taken for missing."""
    text = code.text(node)
    if text.endswith(" is not None"):
        yield replace_node(node, text.removesuffix(" is not None"))
    elif text.endswith(" is None"):
        yield replace_node(node, f"not {text.removesuffix(' is None')}")


@FAMILY.operator("javascript", "truth-for-null", "binary_expression", weight=5)
def js_truthy(code: Code, node: Node) -> Iterable[Change]:
    right = code.text(field(node, "right"))
    if right in ("null", "undefined") and (operator := code.text(field(node, "operator"))) in (
        "!=",
        "!==",
        "==",
        "===",
    ):
        left = code.text(field(node, "left"))
        if field(node, "left").type in ("identifier", "member_expression", "subscript_expression"):
            yield replace_node(node, left if operator.startswith("!") else f"!{left}")


@FAMILY.operator("python", "or-for-none", "conditional_expression", weight=4)
def either(code: Code, node: Node) -> Iterable[Change]:
    """`x if x is not None else y` becomes `x or y`."""
    first, condition, last = (
        (code.text(one) for one in node.named_children[:3]) if len(node.named_children) == 3 else ("", "", "")
    )
    if condition == f"{first} is not None" and first:
        yield replace_node(node, f"{first} or {last}")


@FAMILY.operator("python", "unguarded-get", "call", weight=3)
def unguarded(code: Code, node: Node) -> Iterable[Change]:
    function = field(node, "function")
    args = arguments(node) if field(node, "arguments").type == "argument_list" else []
    if (
        callee(code, node) == "get"
        and function.type == "attribute"
        and len(args) in (1, 2)
        and args[0].type != "keyword_argument"
    ):
        yield replace_node(node, f"{code.text(field(function, 'object'))}[{code.text(args[0])}]")
        if len(args) == 2:
            yield replace_node(node, f"{code.text(function)}({code.text(args[0])})")
    elif callee(code, node) == "getattr" and len(args) == 3:
        yield [(args[1].end_byte, args[2].end_byte, "")]
    elif callee(code, node) in ("setdefault", "pop") and len(args) == 2:
        yield [(args[0].end_byte, args[1].end_byte, "")]
