"""Takes definitions out of a module with what only spoke of them: imports, exports, registrations; and out of test files their tests."""

from __future__ import annotations

import ast
from collections.abc import Collection

import libcst as cst

from etude.factory.generators.deletion.index import uses


def without(text: str, names: Collection[str]) -> str:
    """The module without these top-level functions and classes. Raises cst.ParserSyntaxError."""
    return cst.parse_module(text).visit(_Cut(frozenset(names))).code


def tests_without(text: str, names: Collection[str]) -> str | None:
    """The test file without the tests that use these names; None where the file can't do without them, or nothing would be left."""
    told = frozenset(names)
    trimmed = cst.parse_module(text).visit(_Cut(told, users=_users(text, told))).code
    try:
        tree = ast.parse(trimmed)
    except SyntaxError:
        return None
    left = any(isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in ast.walk(tree))
    return trimmed if left and not told & uses(tree) else None


def _users(text: str, names: frozenset[str]) -> frozenset[str]:
    """Functions at the top or in a class of a test file that use any of the names."""
    found: set[str] = set()
    for node in ast.parse(text).body:
        for inner in (node, *(node.body if isinstance(node, ast.ClassDef) else ())):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and names & uses(inner):
                found.add(inner.name)
    return frozenset(found)


class _Cut(cst.CSTTransformer):
    """`users`: functions to take out as well, in classes too."""

    def __init__(self, names: frozenset[str], users: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.names, self.users = names, users
        self.depth = 0

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef):
        self.depth -= 1
        name = updated_node.name.value
        gone = (self.depth == 0 and name in self.names) or name in self.users
        return cst.RemoveFromParent() if gone else updated_node

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.depth += 1

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef):
        self.depth -= 1
        if self.depth == 0 and updated_node.name.value in self.names:
            return cst.RemoveFromParent()
        empty = self.users and not updated_node.body.body
        return cst.RemoveFromParent() if empty else updated_node

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom):
        if isinstance(updated_node.names, cst.ImportStar):
            return updated_node
        kept = [each for each in updated_node.names if each.evaluated_name not in self.names]
        if len(kept) == len(updated_node.names):
            return updated_node
        if not kept:
            return cst.RemoveFromParent()
        if updated_node.lpar is None:  # a comma behind the last would need parentheses
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(names=kept)

    def leave_Element(self, original_node: cst.Element, updated_node: cst.Element):
        return cst.RemoveFromParent() if self.depth == 0 and self._names(updated_node.value) else updated_node

    def leave_DictElement(self, original_node: cst.DictElement, updated_node: cst.DictElement):
        gone = self.depth == 0 and isinstance(updated_node.value, cst.Name) and self._names(updated_node.value)
        return cst.RemoveFromParent() if gone else updated_node

    def _names(self, value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.Name):
            return value.value in self.names
        return isinstance(value, cst.SimpleString) and value.evaluated_value in self.names
