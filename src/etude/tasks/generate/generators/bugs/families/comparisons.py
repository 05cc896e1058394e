"""Comparisons: bounds that include one too many, the wrong way round, identity for equality; outside binary expressions too."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import field, replace_node, table
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("comparisons")
BOUNDS = {"<": ("<=",), "<=": ("<",), ">": (">=",), ">=": (">",)}
OPPOSITES = {
    **{"<": (">=",), ">=": ("<",), ">": ("<=",), "<=": (">",), "==": ("!=",), "!=": ("==",)},
    **{"in": ("not in",), "not in": ("in",), "is": ("is not",), "is not": ("is",), "===": ("!==",), "!==": ("===",)},
}
CONFUSED = {"==": ("is",), "is": ("==",), "is not": ("!=",)}
LOOSE = {"===": ("==",), "!==": ("!=",)}


def _tokens(node: Node) -> list[Node]:
    """The operators of a comparison; of `not in` and `is not` the node that holds both words."""
    return [child for child in node.children if not child.is_named or child.type in ("not in", "is not")]


@FAMILY.operator("python", "bound", "comparison_operator", weight=5)
def bound(code: Code, node: Node) -> Iterable[Change]:
    for token in _tokens(node):
        yield from table(code, token, BOUNDS)


@FAMILY.operator("python", "flip-comparison", "comparison_operator", weight=2)
def flipped(code: Code, node: Node) -> Iterable[Change]:
    for token in _tokens(node):
        yield from table(code, token, OPPOSITES)


@FAMILY.operator("python", "identity-for-equality", "comparison_operator", weight=2)
def identity(code: Code, node: Node) -> Iterable[Change]:
    for token in _tokens(node):
        yield from table(code, token, CONFUSED)


@FAMILY.operator("javascript", "bound", "binary_expression", weight=5)
def js_bound(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), BOUNDS)


@FAMILY.operator("javascript", "flip-comparison", "binary_expression", weight=2)
def js_flipped(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), {k: v for k, v in OPPOSITES.items() if k not in ("in", "is")})


@FAMILY.operator("javascript", "loose-equality", "binary_expression", weight=2)
def js_loose(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), LOOSE)


@FAMILY.operator("python", "drop-not", "not_operator", weight=3)
def unnegated(code: Code, node: Node) -> Iterable[Change]:
    yield replace_node(node, code.text(field(node, "argument")))


@FAMILY.operator("javascript", "drop-not", "unary_expression", weight=3)
def js_unnegated(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "operator")) == "!":
        yield replace_node(node, code.text(field(node, "argument")))


@FAMILY.operator("python", "and-or", "boolean_operator", weight=3)
def joined(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), {"and": ("or",), "or": ("and",)})


@FAMILY.operator("javascript", "and-or", "binary_expression", weight=3)
def js_joined(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), {"&&": ("||",), "||": ("&&", "??"), "??": ("||",)})


@FAMILY.operator("python", "drop-condition-part", "boolean_operator", weight=4)
def part_dropped(code: Code, node: Node) -> Iterable[Change]:
    yield replace_node(node, code.text(field(node, "left")))
    yield replace_node(node, code.text(field(node, "right")))


@FAMILY.operator("javascript", "drop-condition-part", "binary_expression", weight=4)
def js_part_dropped(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "operator")) in ("&&", "||"):
        yield replace_node(node, code.text(field(node, "left")))
        yield replace_node(node, code.text(field(node, "right")))
