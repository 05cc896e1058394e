"""Off by one in slices, ranges, subscripts and the like."""

from __future__ import annotations

import re
from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import arguments, callee, field, replace_node, without_argument
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("bounds")
_ENDED = re.compile(r"(.+?)(?<!\s)\s*+([+-])\s*+1")
_NUMBER = re.compile(r"-?\d{1,4}")
_TIGHT = frozenset(
    ("identifier", "attribute", "call", "subscript", "member_expression", "call_expression", "subscript_expression")
)


def off(code: Code, node: Node) -> list[str]:
    """The expression one more and one less; of `n - 1` also `n`."""
    text = code.text(node)
    if _NUMBER.fullmatch(text):
        near = (
            [int(text) + 1, int(text) - 1] if int(text) > 0 else [int(text) + 1] if not int(text) else [int(text) - 1]
        )
        return [str(one) for one in near if one]
    if ended := _ENDED.fullmatch(text):
        return [ended[1]]
    return [f"{text} + 1", f"{text} - 1"] if node.type in _TIGHT else []


@FAMILY.operator("python", "slice-bound", "slice", weight=4)
def sliced(code: Code, node: Node) -> Iterable[Change]:
    for part in node.named_children:
        yield from (replace_node(part, text) for text in off(code, part))
    if len(node.named_children) == 1 and code.text(node).count(":") == 1:
        part = node.named_children[0]
        yield replace_node(node, f":{code.text(part)}" if code.text(node).endswith(":") else f"{code.text(part)}:")


@FAMILY.operator("python", "range-bound", "call", weight=4)
def ranged(code: Code, node: Node) -> Iterable[Change]:
    args = arguments(node)
    if callee(code, node) not in ("range", "islice") or not args:
        return
    for one in args[:3]:
        yield from (replace_node(one, text) for text in off(code, one))
    if len(args) == 3:
        yield without_argument(code, node, args[2])
    elif len(args) == 2 and code.text(field(node, "function")) == "range":
        yield without_argument(code, node, args[0])


@FAMILY.operator("python", "start-of-count", "call", weight=2)
def counted(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) == "enumerate":
        args = arguments(node)
        if len(args) == 2:
            yield without_argument(code, node, args[1])
        elif len(args) == 1:
            yield [(args[0].end_byte, args[0].end_byte, ", 1")]


@FAMILY.operator("python", "subscript-place", "subscript", weight=3)
def placed(code: Code, node: Node) -> Iterable[Change]:
    place = field(node, "subscript")
    text = code.text(place)
    swaps = {"0": ("1", "-1"), "-1": ("0", "-2"), "1": ("0", "2"), "2": ("1",)}
    yield from (replace_node(place, other) for other in swaps.get(text, ()))


@FAMILY.operator("javascript", "subscript-place", "subscript_expression", weight=3)
def js_placed(code: Code, node: Node) -> Iterable[Change]:
    yield from (replace_node(field(node, "index"), text) for text in off(code, field(node, "index")))


@FAMILY.operator("javascript", "slice-bound", "call_expression", weight=4)
def js_sliced(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) not in (
        "slice",
        "substring",
        "substr",
        "splice",
        "charAt",
        "charCodeAt",
        "padStart",
        "repeat",
    ):
        return
    args = arguments(node)
    for one in args[:2]:
        yield from (replace_node(one, text) for text in off(code, one))
    if len(args) == 2:
        yield without_argument(code, node, args[1])


@FAMILY.operator("javascript", "loop-start", "for_statement", weight=4)
def js_started(code: Code, node: Node) -> Iterable[Change]:
    declared = [one for one in field(node, "initializer").named_children if one.type == "variable_declarator"]
    if declared and (value := declared[0].child_by_field_name("value")) is not None and code.text(value) in ("0", "1"):
        yield replace_node(value, "1" if code.text(value) == "0" else "0")


@FAMILY.operator("javascript", "length-bound", "member_expression", weight=3)
def js_length(code: Code, node: Node) -> Iterable[Change]:
    if code.text(field(node, "property")) == "length" and node.parent.type == "binary_expression":
        yield replace_node(node, f"{code.text(node)} - 1")
