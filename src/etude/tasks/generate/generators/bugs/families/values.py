"""Values: what is returned, which of two names is meant, methods of strings, regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import (
    arguments,
    callee,
    field,
    remove_statement,
    replace_node,
    without_argument,
)
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("values")
STRINGS = {
    **{
        "strip": ("rstrip", "lstrip"),
        "lower": ("casefold", "upper"),
        "upper": ("lower", "title"),
        "casefold": ("lower",),
    },
    **{"isdigit": ("isalnum", "isdecimal"), "isalpha": ("isalnum",), "isalnum": ("isalpha",), "isspace": ("isalpha",)},
    **{"startswith": ("endswith",), "endswith": ("startswith",), "splitlines": ("split",), "append": ("extend",)},
    **{"removeprefix": ("lstrip",), "removesuffix": ("rstrip",), "title": ("capitalize",), "capitalize": ("title",)},
    **{
        "extend": ("append",),
        "items": ("keys",),
        "keys": ("values",),
        "values": ("keys",),
        "add": ("discard",),
        "update": ("setdefault",),
    },
    **{
        "intersection": ("union",),
        "union": ("intersection",),
        "difference": ("symmetric_difference",),
        "issubset": ("issuperset",),
    },
}
JS_STRINGS = {
    **{
        "toLowerCase": ("toUpperCase",),
        "toUpperCase": ("toLowerCase",),
        "trim": ("trimEnd",),
        "replaceAll": ("replace",),
    },
    **{
        "keys": ("values",),
        "values": ("keys",),
        "entries": ("values",),
        "filter": ("map",),
        "map": ("forEach",),
        "substring": ("substr",),
    },
    **{
        "includes": ("startsWith",),
        "parseInt": ("Number",),
        "parseFloat": ("parseInt",),
        "isNaN": ("isFinite",),
        "match": ("search",),
    },
    **{
        "test": ("exec",),
        "hasOwnProperty": ("propertyIsEnumerable",),
        "isArray": ("isFrozen",),
        "concat": ("push",),
        "add": ("delete",),
    },
}
REGEX = {
    "match": ("search", "fullmatch"),
    "search": ("match",),
    "fullmatch": ("match",),
    "findall": ("finditer",),
    "finditer": ("findall",),
}


@FAMILY.operator("python", "string-method", "call", weight=2)
def method(code: Code, node: Node) -> Iterable[Change]:
    function, name = field(node, "function"), callee(code, node)
    if function.type == "attribute":
        yield from (replace_node(field(function, "attribute"), other) for other in STRINGS.get(name, ()))
        if (
            name in ("strip", "lower", "rstrip", "lstrip", "casefold", "copy", "upper")
            and code.text(field(node, "arguments")) == "()"
        ):
            yield replace_node(node, code.text(field(function, "object")))


@FAMILY.operator("javascript", "string-method", "call_expression", weight=2)
def js_method(code: Code, node: Node) -> Iterable[Change]:
    function, name = field(node, "function"), callee(code, node)
    if function.type == "member_expression":
        yield from (replace_node(field(function, "property"), other) for other in JS_STRINGS.get(name, ()))
        if name in ("trim", "toLowerCase", "toUpperCase", "toString"):
            yield replace_node(node, code.text(field(function, "object")))


@FAMILY.operator("python", "replace-once", "call", weight=2)
def once(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) in ("replace", "split", "rsplit", "sub") and field(node, "arguments").type == "argument_list":
        args = arguments(node)
        if callee(code, node) == "replace" and len(args) == 2:
            yield [(args[1].end_byte, args[1].end_byte, ", 1")]
        elif callee(code, node) in ("split", "rsplit") and len(args) == 2:
            yield without_argument(code, node, args[1])


@FAMILY.operator("python", "regex-function", "call", weight=3)
def regex(code: Code, node: Node) -> Iterable[Change]:
    function = field(node, "function")
    if function.type == "attribute":
        name = field(function, "attribute")
        yield from (replace_node(name, other) for other in REGEX.get(code.text(name), ()))


@FAMILY.operator("python", "regex-flag", "argument_list", weight=3, module_level=True)
def flag(code: Code, node: Node) -> Iterable[Change]:
    if not re.search(
        r"(re\.|^)(compile|sub|match|search|split|findall|fullmatch|finditer)$", code.text(node.parent.children[0])
    ):
        return
    for one in node.named_children[1:]:
        text = code.text(one)
        if "re." not in text and text not in ("I", "M", "S"):
            continue
        if one.type == "attribute" and (call := node.parent).type == "call":
            yield without_argument(code, call, one)
        elif one.type == "binary_operator":
            yield replace_node(one, code.text(field(one, "left")))
            yield replace_node(one, code.text(field(one, "right")))


@FAMILY.operator("javascript", "regex-flag", "regex", weight=3, module_level=True)
def js_flag(code: Code, node: Node) -> Iterable[Change]:
    flags = node.child_by_field_name("flags")
    if flags is not None:
        yield from (replace_node(flags, code.text(flags).replace(letter, "")) for letter in code.text(flags))


@FAMILY.operator("python", "regex-pattern", "string", weight=3, module_level=True)
@FAMILY.operator("javascript", "regex-pattern", "regex_pattern", weight=3, module_level=True)
def pattern(code: Code, node: Node) -> Iterable[Change]:
    """Greedy for lazy, one or more for any number, an anchor that is missing."""
    text = code.text(node)
    around = code.text(node.parent.parent)[:24] if node.parent is not None and node.parent.parent is not None else ""
    if node.type == "string" and not (text.startswith("r") and re.match(r"(re\.|regex\.)\w+\(", around)):
        return
    for old, new in (
        ("+?", "+"),
        ("*?", "*"),
        ("+", "*"),
        ("\\d", "\\w"),
        ("\\s*", "\\s+"),
        ("^", ""),
        ("$", ""),
        ("\\b", ""),
    ):
        place = text.find(old)
        if place > 0 and text.count(old) == 1 and text[place - 1] not in "[\\":
            start = node.start_byte + len(text[:place].encode())
            yield [(start, start + len(old.encode()), new)]


@FAMILY.operator("python", "other-return", "return_statement", weight=2)
def returned(code: Code, node: Node) -> Iterable[Change]:
    value = node.named_children[0] if node.named_children else None
    if value is None:
        return
    replacements = {
        "True": "False",
        "False": "True",
        "None": "False",
        "[]": "None",
        "{}": "None",
        "0": "None",
        "''": "None",
        '""': "None",
    }
    if (other := replacements.get(code.text(value))) is not None:
        yield replace_node(value, other)
    elif value.type == "expression_list" and len(value.named_children) == 2:
        one, other = value.named_children
        yield [(one.start_byte, one.end_byte, code.text(other)), (other.start_byte, other.end_byte, code.text(one))]
    elif value.type == "call" and callee(code, value) in (
        "tuple",
        "list",
        "iter",
        "str",
        "bool",
        "int",
        "float",
        "sorted",
        "bytes",
    ):
        if len(args := arguments(value)) == 1 and args[0].type not in ("generator_expression", "keyword_argument"):
            yield replace_node(value, code.text(args[0]))


@FAMILY.operator("python", "forgotten-return", "return_statement", weight=2)
@FAMILY.operator("javascript", "forgotten-return", "return_statement", weight=2)
def unreturned(code: Code, node: Node) -> Iterable[Change]:
    """An early return that goes on instead; a value worked out and not handed back."""
    if node.parent.type not in ("block", "statement_block"):
        return
    if not node.named_children or node.named_children[0].type in ("true", "false", "none", "null", "identifier"):
        yield remove_statement(code, node)
    elif node.named_children[0].type in ("call", "call_expression", "await", "await_expression"):
        yield replace_node(node, code.text(node.named_children[0]))


@FAMILY.operator("javascript", "other-return", "return_statement", weight=2)
def js_returned(code: Code, node: Node) -> Iterable[Change]:
    value = node.named_children[0] if node.named_children else None
    replacements = {"true": "false", "false": "true", "null": "undefined", "[]": "null", "{}": "null", "0": "null"}
    if value is not None and (other := replacements.get(code.text(value))) is not None:
        yield replace_node(value, other)


@FAMILY.operator("python", "other-variable", "identifier", weight=3)
@FAMILY.operator("javascript", "other-variable", "identifier", weight=3)
def neighbour(code: Code, node: Node) -> Iterable[Change]:
    """A parameter for its neighbour, where both are read: the copy-and-paste slip."""
    if node.parent.type not in (
        "argument_list",
        "arguments",
        "comparison_operator",
        "binary_operator",
        "binary_expression",
        "return_statement",
    ):
        return
    function = code.function_of(node.start_byte)
    parameters = function.node.child_by_field_name("parameters") if function is not None else None
    if parameters is None or parameters.start_byte <= node.start_byte < parameters.end_byte:
        return
    plain = [code.text(one) for one in parameters.named_children if one.type == "identifier"]
    names = [name for name in plain if name not in ("self", "cls")]
    text = code.text(node)
    if text in names and len(names) > 1:
        yield replace_node(node, names[(names.index(text) + 1) % len(names)])


@FAMILY.operator("python", "comprehension-filter", "if_clause", weight=4)
def unfiltered(code: Code, node: Node) -> Iterable[Change]:
    if node.prev_sibling is not None and node.parent.type != "case_clause":
        yield [(node.prev_sibling.end_byte, node.end_byte, "")]
