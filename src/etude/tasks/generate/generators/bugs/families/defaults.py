"""Default arguments and the arguments of calls: another default, one shared by all calls, two in the wrong order, one left out."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import arguments, field, replace_node, swap_nodes, without_argument
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("defaults")
OTHER = {
    "True": ("False",),
    "False": ("True",),
    "None": ("()", "0"),
    "0": ("1",),
    "1": ("0", "2"),
    "-1": ("1",),
    "''": ("None", "' '"),
}
OTHER |= {'""': ("None", '" "'), "()": ("None",), "' '": ("''",), '" "': ('""',), "','": ("';'",)}
JS_OTHER = {
    "true": ("false",),
    "false": ("true",),
    "null": ("undefined",),
    "{}": ("null",),
    "0": ("1",),
    "1": ("0",),
    "''": ("null",),
}
PLAIN = frozenset(("identifier", "attribute", "string", "integer", "subscript", "number", "member_expression"))


@FAMILY.operator("python", "other-default", "default_parameter", "typed_default_parameter", weight=3, module_level=True)
def changed(code: Code, node: Node) -> Iterable[Change]:
    value = field(node, "value")
    yield from (replace_node(value, other) for other in OTHER.get(code.text(value), ()))


@FAMILY.operator("python", "mutable-default", "if_statement", weight=3)
def shared(code: Code, node: Node) -> Iterable[Change]:
    """`if x is None: x = []` goes, and the list moves into the signature, where all calls share it."""
    condition, rows = field(node, "condition"), field(node, "consequence").named_children
    words = code.text(condition).split()
    if len(words) != 3 or words[1:] != ["is", "None"] or len(rows) != 1 or len(node.children) > 4:
        return
    made = code.text(rows[0]).replace(" ", "")
    function = code.function_of(node.start_byte)
    if function is None or made not in {f"{words[0]}={empty}" for empty in ("[]", "{}", "set()", "dict()", "list()")}:
        return
    for parameter in field(function.node, "parameters").named_children:
        if "default" in parameter.type and code.text(field(parameter, "name")) == words[0]:
            yield [
                (field(parameter, "value").start_byte, field(parameter, "value").end_byte, made.partition("=")[2]),
                (node.start_byte, node.end_byte, "pass"),
            ]


@FAMILY.operator("javascript", "other-default", "assignment_pattern", "object_assignment_pattern", weight=3)
def js_changed(code: Code, node: Node) -> Iterable[Change]:
    value = field(node, "right")
    yield from (replace_node(value, other) for other in JS_OTHER.get(code.text(value), ()))


@FAMILY.operator("python", "swapped-arguments", "call", weight=2)
@FAMILY.operator("javascript", "swapped-arguments", "call_expression", weight=2)
def in_wrong_order(code: Code, node: Node) -> Iterable[Change]:
    args = field(node, "arguments")
    plain = [one for one in args.named_children if one.type in PLAIN] if "argument" in args.type else []
    for one, other in zip(plain, plain[1:], strict=False):
        if (
            one.next_named_sibling is not None
            and one.next_named_sibling.id == other.id
            and code.text(one) != code.text(other)
        ):
            yield swap_nodes(code, one, other)


@FAMILY.operator("python", "forgotten-keyword", "call", weight=3)
def unsaid(code: Code, node: Node) -> Iterable[Change]:
    if field(node, "arguments").type != "argument_list":
        return
    for one in arguments(node):
        if one.type == "keyword_argument":
            yield without_argument(code, node, one)


@FAMILY.operator("javascript", "forgotten-argument", "call_expression", weight=2)
def js_unsaid(code: Code, node: Node) -> Iterable[Change]:
    if field(node, "arguments").type == "arguments" and len(args := arguments(node)) > 1:
        yield without_argument(code, node, args[-1])


@FAMILY.operator("python", "flipped-flag", "keyword_argument", weight=2)
def flag(code: Code, node: Node) -> Iterable[Change]:
    value = field(node, "value")
    if value.type in ("true", "false"):
        yield replace_node(value, "False" if value.type == "true" else "True")


@FAMILY.operator("javascript", "flipped-flag", "true", "false", weight=2)
def js_flag(code: Code, node: Node) -> Iterable[Change]:
    if node.parent.type in ("arguments", "assignment_expression", "pair", "variable_declarator"):
        yield replace_node(node, "false" if node.type == "true" else "true")
