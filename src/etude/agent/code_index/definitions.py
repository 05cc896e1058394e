"""What a file defines, read from its syntax tree: kind, qualified name, lines; and where its prose is.

The walk enters what holds definitions (classes, namespaces, statements over several lines) and functions only if they are too long to be
one chunk: names inside a short function are found by its text. A tree with errors gives the definitions that could be read.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etude.agent.code_index.languages import GRAMMARS, Grammar, docs_query, parser

if TYPE_CHECKING:
    from tree_sitter import Node

# Functions with more lines than this are searched for inner definitions; also the longest chunk (chunking.py).
LONG_LINES = 60
# Some grammars parse text that is not their language in quadratic time (`a < b <` in Java: 3 s for 64 KiB, minutes for a MiB), where code takes
# 10 ms. So a large file's beginning is tried first, by the thread's own time; the binding's time-outs would be the plain way, and crash (0.26).
PROBE_BYTES = 64 << 10
PROBE_S = 0.5
# Definitions of these kinds own the functions inside.
OWNERS = frozenset({"class", "interface", "struct", "trait", "impl", "enum", "union"})
FUNCTIONS = frozenset({"function", "method", "macro"})
# Nodes that define something only if their value is one of these.
BOUND = frozenset(
    {"variable_declarator", "assignment_expression", "pair", "field_definition", "public_field_definition"}
)
BOUND_VALUES = {
    "arrow_function": "function",
    "function_expression": "function",
    "generator_function": "function",
    "class": "class",
}
# C-like specifiers without a body only mention a type.
NEED_BODY = frozenset({"struct_specifier", "union_specifier", "enum_specifier", "class_specifier"})
NAME_FIELDS = ("name", "property", "key", "left", "declarator", "type")
NAME = re.compile(r"[^\W\d]\w*[!?=]?(?=\W*$)|[^\W\d]\w*")
RECEIVER = re.compile(r"(\w+)\s*(?:\[[^\]]*\])?\s*\)$")


@dataclass(frozen=True)
class Definition:
    """Rows count from 0, both ends included. `name` is qualified: `Class.method`."""

    kind: str
    name: str
    first: int
    last: int


@dataclass(frozen=True)
class Syntax:
    """`prose`: byte ranges of comments and docstrings, in order, disjoint."""

    definitions: list[Definition]
    prose: list[tuple[int, int]]


class TooHard(Exception):
    """The grammar takes too long for this text, which then hardly is in its language."""


def read_syntax(name: str, source: bytes) -> Syntax:
    """Definitions and prose of a source in the grammar `name`. Raises TooHard."""
    from tree_sitter import QueryCursor

    if len(source) > 2 * PROBE_BYTES:
        began = time.thread_time()
        parser(name).parse(source[:PROBE_BYTES])
        if time.thread_time() - began > PROBE_S:
            raise TooHard(f"{name}: {PROBE_BYTES} bytes took more than {PROBE_S} s")
    root = parser(name).parse(source).root_node
    captured = QueryCursor(docs_query(name)).captures(root).get("doc", [])
    ranges = sorted((node.start_byte, node.end_byte) for node in captured)
    prose = [r for i, r in enumerate(ranges) if not i or r[0] >= ranges[i - 1][1]]
    return Syntax(_definitions(root, GRAMMARS[name]), prose)


def _definitions(root: Node, grammar: Grammar) -> list[Definition]:
    """In order of their first rows, outer ones first."""
    found: list[Definition] = []
    pending: list[tuple[Node, Definition | None, int | None]] = [(root, None, None)]
    while pending:
        node, owner, wrapped_at = pending.pop()
        for child in node.named_children:
            first, last = _rows(child)
            if wrapped_at is not None:
                first = min(first, wrapped_at)
            made = _definition(child, grammar, owner, first, last)
            if made is not None:
                found.append(made)
            if last == first or (made is not None and made.kind in FUNCTIONS and last - first < LONG_LINES):
                continue
            pending.append((child, made or owner, first if child.type in grammar.wrappers else None))
    return sorted(found, key=lambda d: (d.first, -d.last))


def _rows(node: Node) -> tuple[int, int]:
    """First and last row; a node that ends with a line end does not reach into the next row."""
    first, (last, column) = node.start_point.row, node.end_point
    return first, last - 1 if not column and last > first else last


def _definition(node: Node, grammar: Grammar, owner: Definition | None, first: int, last: int) -> Definition | None:
    kind = grammar.kinds.get(node.type)
    if kind is None or (node.type in NEED_BODY and node.child_by_field_name("body") is None):
        return None
    if node.type in BOUND:
        value = node.child_by_field_name("value") or node.child_by_field_name("right")
        kind = BOUND_VALUES.get(value.type) if value is not None else None
        if kind is None:
            return None
    name = _name(node)
    if not name:
        return None
    if kind == "function" and owner is not None and owner.kind in OWNERS:
        kind = "method"
    above = [owner.name] if owner is not None else _receiver(node)
    return Definition(kind, ".".join([*above, name]), first, last)


def _name(node: Node) -> str:
    """The last name in the field that names the node: `bar` of `Foo.prototype.bar`, of `Foo::bar` and of `*bar(int)`."""
    part: Node | None = node
    while part is not None and part.child_count:
        inner = next((found for f in NAME_FIELDS if (found := part.child_by_field_name(f)) is not None), None)
        if inner is None:
            break
        part = inner
    if part is None or part is node or part.text is None:
        return ""
    found = NAME.search(part.text.decode(errors="replace"))
    return found[0] if found else ""


def _receiver(node: Node) -> Sequence[str]:
    """The type a Go method belongs to."""
    receiver = node.child_by_field_name("receiver")
    if receiver is None or receiver.text is None:
        return []
    found = RECEIVER.search(receiver.text.decode(errors="replace"))
    return [found[1]] if found else []
