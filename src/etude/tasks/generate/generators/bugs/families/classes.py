"""Classes: a base that is missing, methods that are gone, methods in another order, a parent that is not asked."""

from __future__ import annotations

from collections.abc import Iterable

from etude.tasks.generate.generators.bugs.code import DECISIONS, Code, Node, descendants
from etude.tasks.generate.generators.bugs.cutting import (
    callee,
    field,
    lines_of,
    remove_statement,
    replace_node,
    statements,
    swap_nodes,
)
from etude.tasks.generate.generators.bugs.operator import Change, OperatorFamily

FAMILY = OperatorFamily("classes")
COMPLEX = 10  # of a whole class, SWE-smith's gate


def _complex(node: Node) -> bool:
    return sum(one.type in DECISIONS for one in descendants(node)) >= COMPLEX


@FAMILY.operator("python", "remove-base", "class_definition", weight=1, module_level=True)
def baseless(code: Code, node: Node) -> Iterable[Change]:
    bases = node.child_by_field_name("superclasses")
    named = [one for one in bases.named_children if one.type in ("identifier", "attribute")] if bases else []
    if not named or not _complex(node):
        return
    if len(bases.named_children) == 1:
        yield replace_node(bases, "")
        return
    for place, one in enumerate(bases.named_children):
        if one.type == "keyword_argument":
            continue
        last = place == len(bases.named_children) - 1
        start = bases.named_children[place - 1].end_byte if last else one.start_byte
        yield [(start, one.end_byte if last else bases.named_children[place + 1].start_byte, "")]


@FAMILY.operator("javascript", "remove-base", "class_heritage", weight=0.5, module_level=True)
def js_baseless(code: Code, node: Node) -> Iterable[Change]:
    if _complex(node.parent) and "super" not in code.text(node.parent):
        yield replace_node(node, "")


@FAMILY.operator("python", "remove-method", "class_definition", weight=0.3, module_level=True)
def methodless(code: Code, node: Node) -> Iterable[Change]:
    """A method goes, and calls to it inside the class become None, so that what is missing is its work, not its name."""
    body = field(node, "body")
    methods = [one for one in statements(body) if one.type == "function_definition"]
    if not _complex(node) or len(methods) < 2:
        return
    calls = [one for one in descendants(body) if one.type == "call"]
    for method in methods:
        name = code.text(field(method, "name"))
        if name.startswith("__"):
            continue
        own = [c for c in calls if callee(code, c) == name and code.text(c).startswith("self.")]
        outer = [c for c in own if not method.start_byte <= c.start_byte < method.end_byte]
        edges = [c for c in outer if not any(o is not c and o.start_byte <= c.start_byte < o.end_byte for o in outer)]
        start, end = lines_of(code, method)
        yield [(start, end, ""), *((c.start_byte, c.end_byte, "None") for c in edges)]


@FAMILY.operator("python", "shuffle-methods", "class_definition", weight=0.1, module_level=True)
def reordered(code: Code, node: Node) -> Iterable[Change]:
    """Shows only where the order means something: two of one name, a decorator that uses an earlier one."""
    methods = [
        one for one in statements(field(node, "body")) if one.type in ("function_definition", "decorated_definition")
    ]
    if _complex(node):
        for one, other in zip(methods, methods[1:], strict=False):
            if code.text(one.children[0]) != "def" or code.text(other.children[0]) != "def":
                yield swap_nodes(code, one, other)


@FAMILY.operator("python", "forgotten-super", "expression_statement", weight=2)
@FAMILY.operator("javascript", "forgotten-super", "expression_statement", weight=2)
def superless(code: Code, node: Node) -> Iterable[Change]:
    if code.text(node).startswith(("super().", "super.")):
        yield remove_statement(code, node)


@FAMILY.operator("python", "wrong-decorator", "decorator", weight=1, module_level=True)
def undecorated(code: Code, node: Node) -> Iterable[Change]:
    decorator = code.text(node).removeprefix("@").strip()
    if decorator in ("property", "staticmethod", "functools.wraps", "contextmanager", "functools.total_ordering"):
        start, end = lines_of(code, node)
        yield [(start, end, "")]
    elif decorator == "classmethod":
        yield replace_node(node, "@staticmethod")
