"""Control flow and statements: SWE-smith's inversions, shuffles and removals, and the loops that end too early or too late."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import (
    dedent_block,
    field,
    remove_statement,
    replace_node,
    statements,
    swap_nodes,
    table,
)
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("control")


def _else(node: Node) -> Node | None:
    """The body of a plain else, where there is no elif."""
    found = [child for child in node.children if child.type in ("else_clause", "elif_clause")]
    if len(found) != 1 or found[0].type != "else_clause":
        return None
    body = found[0].child_by_field_name("body") or (found[0].named_children or [None])[-1]
    return None if body is None or body.type == "if_statement" else body


@FAMILY.operator("python", "invert-if", "if_statement", weight=1, complexity=5)
@FAMILY.operator("javascript", "invert-if", "if_statement", weight=1, complexity=5)
def inverted(code: Code, node: Node) -> Iterable[Change]:
    if (other := _else(node)) is not None:
        yield swap_nodes(code, field(node, "consequence"), other)


@FAMILY.operator("python", "invert-choice", "conditional_expression", weight=2)
def choice(code: Code, node: Node) -> Iterable[Change]:
    yield swap_nodes(code, node.named_children[0], node.named_children[-1])


@FAMILY.operator("javascript", "invert-choice", "ternary_expression", weight=2)
def js_choice(code: Code, node: Node) -> Iterable[Change]:
    yield swap_nodes(code, field(node, "consequence"), field(node, "alternative"))


@FAMILY.operator("python", "shuffle-statements", "function_definition", weight=0.3)
@FAMILY.operator("javascript", "shuffle-statements", "function_declaration", "method_definition", weight=0.3)
def shuffled(code: Code, node: Node) -> Iterable[Change]:
    """Neighbours of a short function with a loop: an order that a person may mistake, unlike a random one."""
    rows = statements(field(node, "body"))
    loops = [row for row in rows if row.type in ("for_statement", "while_statement", "for_in_statement")]
    if not loops or len(rows) > 10:
        return
    for one, other in zip(rows, rows[1:], strict=False):
        if not {one.type, other.type} & {"return_statement", "import_statement", "function_definition"}:
            yield swap_nodes(code, one, other)


@FAMILY.operator("python", "remove-assignment", "expression_statement", weight=1, complexity=3)
def unassigned(code: Code, node: Node) -> Iterable[Change]:
    if node.named_children and node.named_children[0].type in ("assignment", "augmented_assignment"):
        yield remove_statement(code, node)


@FAMILY.operator("javascript", "remove-assignment", "expression_statement", weight=1, complexity=3)
def js_unassigned(code: Code, node: Node) -> Iterable[Change]:
    if node.named_children[0].type in ("assignment_expression", "augmented_assignment_expression", "update_expression"):
        yield remove_statement(code, node)


@FAMILY.operator("python", "remove-condition", "if_statement", weight=2, complexity=3)
@FAMILY.operator("javascript", "remove-condition", "if_statement", weight=2, complexity=3)
def unconditional(code: Code, node: Node) -> Iterable[Change]:
    if node.parent.type in ("block", "statement_block") and not any(
        "else" in c.type or "elif" in c.type for c in node.children
    ):
        yield remove_statement(code, node)


@FAMILY.operator("python", "remove-branch", "elif_clause", weight=3)
def branch(code: Code, node: Node) -> Iterable[Change]:
    before = node.prev_sibling
    yield [(before.end_byte, node.end_byte, "")]


@FAMILY.operator("python", "remove-loop", "for_statement", "while_statement", weight=0.5, complexity=3)
@FAMILY.operator(
    "javascript", "remove-loop", "for_statement", "while_statement", "for_in_statement", weight=0.5, complexity=3
)
def unlooped(code: Code, node: Node) -> Iterable[Change]:
    if node.parent.type in ("block", "statement_block"):
        yield remove_statement(code, node)


@FAMILY.operator("python", "remove-wrapper", "with_statement", "try_statement", weight=1.5, complexity=3)
def unwrapped(code: Code, node: Node) -> Iterable[Change]:
    yield replace_node(node, dedent_block(code, field(node, "body"), node))


@FAMILY.operator("javascript", "remove-wrapper", "try_statement", weight=1.5, complexity=3)
def js_unwrapped(code: Code, node: Node) -> Iterable[Change]:
    yield replace_node(node, code.text(field(node, "body")))


@FAMILY.operator("python", "break-continue", "break_statement", "continue_statement", weight=3)
@FAMILY.operator("javascript", "break-continue", "break_statement", "continue_statement", weight=3)
def loop_end(code: Code, node: Node) -> Iterable[Change]:
    if any(one.type == "switch_case" for one in (node.parent, node.parent.parent) if one is not None):
        return
    yield from table(code, node.children[0], {"break": ("continue",), "continue": ("break",)})


@FAMILY.operator("python", "remove-call", "expression_statement", weight=2, complexity=2)
@FAMILY.operator("javascript", "remove-call", "expression_statement", weight=2, complexity=2)
def uncalled(code: Code, node: Node) -> Iterable[Change]:
    """A step forgotten: a call whose value is not used."""
    if node.named_children and node.named_children[0].type in ("call", "call_expression", "await", "await_expression"):
        yield remove_statement(code, node)
