"""Ordering: by another key, the other way round, not at all; sets where order counts; the smallest for the largest."""

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

FAMILY = OperatorFamily("ordering")
OTHERS = {
    **{"min": "max", "max": "min", "appendleft": "append", "popleft": "pop", "lstrip": "rstrip", "rstrip": "lstrip"},
    **{
        "bisect_left": "bisect_right",
        "bisect_right": "bisect_left",
        "any": "all",
        "all": "any",
        "heappushpop": "heapreplace",
    },
    **{
        "find": "rfind",
        "rfind": "find",
        "index": "rindex",
        "split": "rsplit",
        "rsplit": "split",
        "partition": "rpartition",
    },
    **{
        "rpartition": "partition",
        "ljust": "rjust",
        "rjust": "ljust",
        "insort_left": "insort_right",
        "floor": "ceil",
        "ceil": "floor",
    },
}
JS_OTHERS = {
    **{"push": "unshift", "unshift": "push", "shift": "pop", "pop": "shift", "some": "every", "every": "some"},
    **{
        "min": "max",
        "max": "min",
        "floor": "ceil",
        "ceil": "floor",
        "round": "floor",
        "indexOf": "lastIndexOf",
        "lastIndexOf": "indexOf",
    },
    **{
        "reduce": "reduceRight",
        "padStart": "padEnd",
        "padEnd": "padStart",
        "trimStart": "trimEnd",
        "trimEnd": "trimStart",
    },
    **{"startsWith": "endsWith", "endsWith": "startsWith", "find": "findLast", "findIndex": "findLastIndex"},
}


@FAMILY.operator("python", "sort-direction", "call", weight=3)
def direction(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) not in ("sorted", "sort", "nlargest", "nsmallest", "groupby"):
        return
    option = keyword(code, node, "reverse")
    if option is not None:
        yield without_argument(code, node, option)
    elif callee(code, node) in ("sorted", "sort"):
        args = arguments(node)
        if args and args[0].type != "generator_expression":
            yield [(args[-1].end_byte, args[-1].end_byte, ", reverse=True")]


@FAMILY.operator("python", "sort-key", "call", weight=3)
def key(code: Code, node: Node) -> Iterable[Change]:
    option = keyword(code, node, "key") if field(node, "arguments").type == "argument_list" else None
    if option is not None:
        yield without_argument(code, node, option)


@FAMILY.operator("python", "unsorted", "call", weight=4)
def unsorted(code: Code, node: Node) -> Iterable[Change]:
    if (
        callee(code, node) in ("sorted", "reversed")
        and len(arguments(node)) >= 1
        and field(node, "function").type == "identifier"
    ):
        yield replace_node(field(node, "function"), "list")
    if callee(code, node) == "sort":
        yield replace_node(field(node, "function"), code.text(field(node, "function")).removesuffix("sort") + "reverse")


@FAMILY.operator("python", "first-for-last", "call", weight=2)
def other_end(code: Code, node: Node) -> Iterable[Change]:
    function = field(node, "function")
    name = callee(code, node)
    if name in OTHERS and (function.type == "attribute" or name in ("min", "max", "any", "all")):
        yield replace_node(function, code.text(function).removesuffix(name) + OTHERS[name])


@FAMILY.operator("javascript", "first-for-last", "call_expression", weight=2)
def js_other_end(code: Code, node: Node) -> Iterable[Change]:
    function = field(node, "function")
    name = callee(code, node)
    if name in JS_OTHERS and function.type == "member_expression":
        yield replace_node(field(function, "property"), JS_OTHERS[name])


@FAMILY.operator("javascript", "sort-order", "call_expression", weight=3)
def js_sorted(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) in ("sort", "toSorted") and len(args := arguments(node)) == 1:
        yield replace_node(args[0], "")


@FAMILY.operator("javascript", "unreversed", "call_expression", weight=3)
def js_unreversed(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) == "reverse":
        yield replace_node(node, code.text(field(field(node, "function"), "object")))


@FAMILY.operator("python", "popped-wrong-end", "call", weight=3)
def popped(code: Code, node: Node) -> Iterable[Change]:
    if callee(code, node) == "pop" and field(node, "arguments").type == "argument_list":
        args = arguments(node)
        if not args:
            yield replace_node(field(node, "arguments"), "(0)")
        elif code.text(args[0]) == "0" and len(args) == 1:
            yield replace_node(field(node, "arguments"), "()")
