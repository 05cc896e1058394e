"""Exceptions: handled too widely, too narrowly or not at all, of the wrong type, swallowed, raised no more."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import Code, Node
from etude.tasks.generate.generators.bugs.cutting import field, remove_statement, replace_node, statements
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("exceptions")
# Neighbours that are mistaken for each other, and what lies above and below them (docs.python.org/3/library/exceptions.html).
MISTAKEN = {
    **{"KeyError": ("IndexError", "AttributeError"), "IndexError": ("KeyError",), "ValueError": ("TypeError",)},
    **{"TypeError": ("ValueError",), "AttributeError": ("KeyError", "TypeError"), "LookupError": ("KeyError",)},
    **{"OSError": ("FileNotFoundError", "ValueError"), "FileNotFoundError": ("PermissionError",)},
    **{
        "StopIteration": ("IndexError",),
        "ImportError": ("ModuleNotFoundError",),
        "UnicodeDecodeError": ("UnicodeEncodeError",),
    },
    **{"NotImplementedError": ("AttributeError",), "Exception": ("ValueError",), "RuntimeError": ("ValueError",)},
    **{
        "ZeroDivisionError": ("OverflowError",),
        "OverflowError": ("ZeroDivisionError",),
        "AssertionError": ("ValueError",),
    },
}
JS_MISTAKEN = {
    "TypeError": ("RangeError", "Error"),
    "RangeError": ("TypeError",),
    "SyntaxError": ("Error",),
    "Error": ("TypeError",),
}


def _caught(node: Node) -> Node | None:
    """The types of an except clause."""
    kinds = [child for child in node.named_children if child.type not in ("block", "comment")]
    if not kinds:
        return None
    return kinds[0].named_children[0] if kinds[0].type == "as_pattern" else kinds[0]


@FAMILY.operator("python", "narrow-except", "except_clause", weight=4)
def narrowed(code: Code, node: Node) -> Iterable[Change]:
    kinds = _caught(node)
    if kinds is None:
        return
    if kinds.type == "tuple":
        yield from (replace_node(kinds, code.text(one)) for one in kinds.named_children)
    yield from (replace_node(kinds, other) for other in MISTAKEN.get(code.text(kinds), ()))


@FAMILY.operator("python", "widen-except", "except_clause", weight=2)
def widened(code: Code, node: Node) -> Iterable[Change]:
    kinds = _caught(node)
    if kinds is not None and code.text(kinds) not in ("Exception", "BaseException"):
        yield replace_node(kinds, "Exception")


@FAMILY.operator("python", "swallow-exception", "raise_statement", weight=3)
def swallowed(code: Code, node: Node) -> Iterable[Change]:
    """Inside a handler: what was passed on is kept quiet."""
    if node.parent.type == "block" and node.parent.parent.type == "except_clause":
        yield replace_node(node, "pass")


@FAMILY.operator("python", "forgotten-raise", "raise_statement", weight=2)
def unraised(code: Code, node: Node) -> Iterable[Change]:
    """A check that is gone with its condition, or an error that is made and never raised."""
    holder = node.parent.parent if node.parent.type == "block" else None
    if (
        holder is not None
        and holder.type == "if_statement"
        and len(statements(node.parent)) == 1
        and len(holder.children) < 5
    ):
        yield remove_statement(code, holder)
    if node.named_children:
        yield replace_node(node, code.text(node.named_children[0]))


@FAMILY.operator("python", "wrong-exception", "raise_statement", weight=3)
def mistaken(code: Code, node: Node) -> Iterable[Change]:
    kind = node.named_children[0] if node.named_children else None
    if kind is not None and kind.type == "call":
        kind = field(kind, "function")
    if kind is not None:
        yield from (replace_node(kind, other) for other in MISTAKEN.get(code.text(kind), ()))


@FAMILY.operator("python", "forgotten-finally", "finally_clause", weight=2)
def unfinished(code: Code, node: Node) -> Iterable[Change]:
    """What must happen always happens only when all is well."""
    block = node.named_children[-1]
    if any(one.type == "except_clause" for one in node.parent.children):
        yield [
            (node.start_byte, block.start_byte, f"else:{code.source[node.start_byte : block.start_byte].decode()[8:]}")
        ]


@FAMILY.operator("javascript", "wrong-exception", "throw_statement", weight=3)
def js_mistaken(code: Code, node: Node) -> Iterable[Change]:
    made = node.named_children[0]
    if made.type == "new_expression":
        kind = field(made, "constructor")
        yield from (replace_node(kind, other) for other in JS_MISTAKEN.get(code.text(kind), ()))


@FAMILY.operator("javascript", "forgotten-raise", "throw_statement", weight=2)
def js_unraised(code: Code, node: Node) -> Iterable[Change]:
    if node.parent.type == "statement_block":
        yield remove_statement(code, node)
        made = node.named_children[0]
        yield replace_node(node, f"return {code.text(made)};")


@FAMILY.operator("javascript", "swallow-exception", "catch_clause", weight=2)
def js_swallowed(code: Code, node: Node) -> Iterable[Change]:
    body = field(node, "body")
    if statements(body):
        yield replace_node(body, "{}")
