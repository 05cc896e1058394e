"""A source file as its concrete syntax tree: every token has its bytes, so that a change can leave all others alone.

tree-sitter rather than a printing tree: the same walk serves Python and JavaScript, and a project of 30,000 lines is read in a second.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from etude.agent.code_index.definitions import TooHard
from etude.agent.code_index.grammar_process import first_error
from etude.agent.code_index.languages import grammar_name, parser
from etude.core.bounded_python import parse_python

LANGUAGES = {"python": "python", "javascript": "javascript", "typescript": "javascript", "tsx": "javascript"}
FUNCTIONS = frozenset(
    ("function_definition", "function_declaration", "generator_function_declaration", "method_definition")
    + ("arrow_function", "function_expression", "generator_function")
)
CLASSES = frozenset(("class_definition", "class_declaration", "class"))
# What makes a path through a function: SWE-smith counts the same for its gates.
DECISIONS = frozenset(
    (
        "if_statement",
        "elif_clause",
        "for_statement",
        "for_in_statement",
        "while_statement",
        "do_statement",
        "except_clause",
    )
    + (
        "catch_clause",
        "boolean_operator",
        "comparison_operator",
        "conditional_expression",
        "ternary_expression",
        "case_clause",
    )
    + (
        "switch_case",
        "binary_operator",
        "binary_expression",
        "if_clause",
        "for_in_clause",
        "with_statement",
        "assert_statement",
    )
)
UNREADABLE = b"("  # a syntax error in every language
Node = Any  # tree_sitter.Node; the import costs time that a listing of generators should not pay


@dataclass(frozen=True)
class CodeFunction:
    """A function by its dotted name. `complexity`: 1 + decisions in it, inner functions included."""

    name: str
    node: Node
    complexity: int

    @property
    def short(self) -> str:
        return self.name.rpartition(".")[2]


class Code:
    """One file. `language` is python or javascript; raises ValueError for another."""

    def __init__(self, path: str, source: bytes) -> None:
        grammar = grammar_name(path, source.decode("utf-8", "replace")[:200])
        if grammar not in LANGUAGES:
            raise ValueError(f"{path}: neither Python nor JavaScript")
        self.path, self.source, self.language = path, source, LANGUAGES[grammar]
        self._grammar = grammar
        self.root: Node = self._parsed(source)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, tokens too, in the order they begin."""
        found: list[Node] = []
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += reversed(node.children)
        return tuple(found)

    @cached_property
    def by_kind(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            found.setdefault(node.type, []).append(node)
        return found

    @cached_property
    def functions(self) -> tuple[CodeFunction, ...]:
        """Named functions and methods, outer before inner."""
        return tuple(_functions(self, self.root, ""))

    def function_of(self, start: int) -> CodeFunction | None:
        """The innermost named function around a byte."""
        around = [one for one in self.functions if one.node.start_byte <= start < one.node.end_byte]
        return around[-1] if around else None

    def text(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def line(self, byte: int) -> int:
        return self.source.count(b"\n", 0, byte) + 1

    def sound(self, changed: bytes) -> bool:
        """Whether the changed source is one, and says something else than this one."""
        if changed == self.source:
            return False
        if self.language == "python":
            try:
                return ast.dump(parse_python(changed)) != ast.dump(self._tree)
            except (SyntaxError, ValueError, RecursionError):
                return False
        try:
            return first_error(self._grammar, changed) == 0
        except TooHard:
            return False

    def _parsed(self, source: bytes) -> Node:
        """By a parser of its own: lists of candidates are made in threads. The grammar reads the source in a process of its own first; where
        it crashes there, or takes too long, the tree is one of a syntax error."""
        from tree_sitter import Parser

        language = parser(self._grammar).language
        assert language is not None  # parser() gave it one
        try:
            first_error(self._grammar, source)
        except TooHard:
            source = UNREADABLE
        return Parser(language).parse(source).root_node

    @cached_property
    def _tree(self) -> ast.Module:
        return parse_python(self.source)


def descendants(node: Node) -> Iterator[Node]:
    """The node's descendants, itself first, in order."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += reversed(one.children)


def ancestors(node: Node) -> Iterator[Node]:
    while (node := node.parent) is not None:
        yield node


def within(node: Node, *kinds: str) -> bool:
    """Whether a node of one of these kinds lies around, in the same function."""
    for one in ancestors(node):
        if one.type in kinds:
            return True
        if one.type in FUNCTIONS:
            return False
    return False


def _functions(code: Code, node: Node, owner: str) -> Iterator[CodeFunction]:
    for child in node.children:
        name = _name(code, child)
        if name and child.type in FUNCTIONS:
            complexity = 1 + sum(one.type in DECISIONS for one in descendants(child))
            yield CodeFunction(owner + name, child, complexity)
        yield from _functions(code, child, f"{owner}{name}." if name else owner)


def _name(code: Code, node: Node) -> str:
    if node.type not in FUNCTIONS and node.type not in CLASSES:
        return ""
    if (named := node.child_by_field_name("name")) is not None:
        return code.text(named)
    holder = node.parent  # const f = () => …, exports.f = function …, f: function …
    for key in ("name", "left", "key"):
        if holder is not None and (named := holder.child_by_field_name(key)) is not None and named.id != node.id:
            return code.text(named).rpartition(".")[2]
    return ""
