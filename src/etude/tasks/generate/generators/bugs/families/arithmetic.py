"""Arithmetic, SWE-smith's four operators without its draws of the same operator: change, swap, constants, broken chains."""

from __future__ import annotations

import re
from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import field, replace_node, swap_nodes, table
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("arithmetic")
KINSHIPS = (("+", "-"), ("*", "/", "//", "%"), ("&", "|", "^"), ("<<", ">>"), ("**", "*"))
OTHERS = {one: tuple(other for other in kin if other != one) for kin in reversed(KINSHIPS) for one in kin}
AUGMENTED = {f"{one}=": tuple(f"{other}=" for other in others) for one, others in OTHERS.items()}
PLAIN_INTEGER = re.compile(r"[0-9]{1,6}")
JS_OTHERS = {one: tuple(other for other in others if other != "//") for one, others in OTHERS.items() if one != "//"}
JS_AUGMENTED = {one: tuple(other for other in others if other != "//=") for one, others in AUGMENTED.items()}
UNSWAPPED = frozenset(
    ("+", "*", "&", "|", "^")
)  # swapping numbers changes nothing; of other types it is tried as well, later


def _near(code: Code, node: Node) -> list[Change]:
    text = code.text(node)
    if not PLAIN_INTEGER.fullmatch(text):
        return []
    return [replace_node(node, str(int(text) + 1)), *([replace_node(node, str(int(text) - 1))] if int(text) else [])]


@FAMILY.operator("python", "operator-change", "binary_operator", weight=2, complexity=3)
def changed(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), OTHERS)


@FAMILY.operator("javascript", "operator-change", "binary_expression", weight=2, complexity=3)
def js_changed(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), JS_OTHERS)


@FAMILY.operator("python", "augmented-change", "augmented_assignment", weight=2)
def augmented(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), AUGMENTED)
    yield replace_node(field(node, "operator"), "=")


@FAMILY.operator("javascript", "augmented-change", "augmented_assignment_expression", weight=2)
def js_augmented(code: Code, node: Node) -> Iterable[Change]:
    yield from table(code, field(node, "operator"), JS_AUGMENTED)
    yield replace_node(field(node, "operator"), "=")


@FAMILY.operator("python", "operand-swap", "binary_operator", weight=1, complexity=3)
def operands_swapped(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "left")) != code.text(field(node, "right")):
        yield swap_nodes(code, field(node, "left"), field(node, "right"))


@FAMILY.operator("javascript", "operand-swap", "binary_expression", weight=1, complexity=3)
def js_operands_swapped(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "operator")) in ("-", "/", "%", "+", "**", "<", ">", "<=", ">="):
        yield swap_nodes(code, field(node, "left"), field(node, "right"))


@FAMILY.operator("python", "constant-change", "integer", weight=3, complexity=3)
def constant(code: Code, node: Node) -> Iterable[Change]:
    if node.parent.type in ("binary_operator", "comparison_operator", "augmented_assignment", "return_statement"):
        yield from _near(code, node)


@FAMILY.operator("javascript", "constant-change", "number", weight=3, complexity=3)
def js_constant(code: Code, node: Node) -> Iterable[Change]:
    if node.parent.type in ("binary_expression", "augmented_assignment_expression", "return_statement"):
        yield from _near(code, node)


@FAMILY.operator("python", "chain-break", "binary_operator", weight=1, complexity=3)
def broken(code: Code, node: Node) -> Iterable[Change]:
    for side in ("left", "right"):
        nested = field(node, side)
        if nested.type == "binary_operator":
            yield replace_node(node, code.text(field(nested, "left")))
            yield replace_node(node, code.text(field(nested, "right")))


@FAMILY.operator("javascript", "chain-break", "binary_expression", weight=1, complexity=3)
def js_broken(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "operator")) in JS_OTHERS and field(node, "left").type == "binary_expression":
        yield replace_node(node, code.text(field(node, "left")))
        yield replace_node(node, code.text(field(node, "right")))


@FAMILY.operator("python", "drop-sign", "unary_operator", weight=2)
def unsigned(code: Code, node: Node) -> Iterable[Change]:
    yield replace_node(node, code.text(field(node, "argument")))
