"""One module's deprecated generics of `typing` become the built-in ones and those of `collections` and `re` (PEP 585).

A module where the new name already means something else (a method `list`, a parameter `type`) is refused whole: by its spelling alone no one
could tell which is meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

import libcst as cst
from libcst import matchers

from etude.core.bounded_python import parse_expression, parse_python
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generators.concrete import concrete
from etude.tasks.generate.generators.migration.stale import MOVED, TAKING, stale

_QUOTED = re.compile(r"[\w.]+\[|^[\w.]+\.\w+$")


def migrate_source(text: str) -> str:
    """Raises CandidateRejected with what is in the way."""
    try:
        tree = parse_python(text)
        module = concrete(text)
    except (SyntaxError, cst.ParserSyntaxError) as error:
        raise CandidateRejected(f"it is no Python that can be rewritten: {type(error).__name__}") from error
    whole, names = _bound(tree)
    used = {name.rpartition(".")[2] for name in stale(tree)}
    _require_free(tree, {MOVED[name][1] for name in used})
    change = _Generics(whole, names)
    try:
        code = module.visit(change).code
    except RecursionError as error:
        raise CandidateRejected("it is nested too deeply to be rewritten") from error
    for alias in whole:
        if not re.search(rf"(?<![\w.]){re.escape(alias)}\.", code):
            code = _without_import(code, alias)
    left = stale(parse_python(code))
    if left:
        raise CandidateRejected(f"{left[0]} is used in a way that can't be rewritten")
    return code


def _bound(tree: ast.Module) -> tuple[frozenset[str], dict[str, str]]:
    """Names that mean typing itself, and what names mean that were imported of it."""
    whole: set[str] = set()
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            whole |= {alias.asname or alias.name for alias in node.names if alias.name == "typing"}
        elif isinstance(node, ast.ImportFrom) and node.module == "typing" and not node.level:
            if any(alias.name == "*" for alias in node.names):
                raise CandidateRejected("it imports all of typing by a star")
            names |= {alias.asname or alias.name: alias.name for alias in node.names if alias.name in MOVED}
    return frozenset(whole), names


def _require_free(tree: ast.Module, wanted: set[str]) -> None:
    """Raises CandidateRejected for a new name that the module binds itself, other than by importing the very thing."""
    places = {(module, name) for module, name in MOVED.values()}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            own = {
                a.asname or a.name
                for a in node.names
                if (node.module, a.name) not in places and node.module != "typing"
            }
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own = {node.name}
        elif isinstance(node, ast.arg):
            own = {node.arg}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own = {node.id}
        else:
            continue
        if taken := sorted(own & wanted):
            raise CandidateRejected(f"`{taken[0]}` means something else in it (line {node.lineno})")


class _Generics(cst.CSTTransformer):
    def __init__(self, whole: frozenset[str], names: Mapping[str, str]) -> None:
        super().__init__()
        self.whole, self.names = whole, names
        self.needed: dict[str, set[str]] = {}
        self.importing = False
        self.quoted: set[cst.CSTNode] = set()  # strings in the places of types

    def new(self, old: str) -> cst.Name:
        module, name = MOVED[old]
        if module:
            self.needed.setdefault(module, set()).add(name)
        return cst.Name(name)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return not isinstance(node.value, cst.Name) or node.value.value in self.whole

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        value, name = original_node.value, original_node.attr.value
        if isinstance(value, cst.Name) and value.value in self.whole:
            return self.new(name) if name in MOVED else original_node
        return updated_node.with_changes(attr=original_node.attr)

    def visit_Arg_keyword(self, node: cst.Arg) -> None:
        self.importing = True  # the word before `=` is no name of the module's

    def leave_Arg_keyword(self, node: cst.Arg) -> None:
        self.importing = False

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        old = self.names.get(original_node.value)
        return self.new(old) if old and not self.importing else updated_node

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._of_types(node)

    def visit_SubscriptElement(self, node: cst.SubscriptElement) -> None:
        self._of_types(node)

    def visit_Call(self, node: cst.Call) -> None:
        named = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
        called = named.value if isinstance(named, cst.Name) else ""
        self._of_types(*[one for one in node.args if one.keyword is None][TAKING.get(called, slice(0))])
        self._of_types(*(one for one in node.args if one.keyword is not None and called == "TypeVar"))

    def _of_types(self, *places: cst.CSTNode) -> None:
        self.quoted |= {one for place in places for one in matchers.findall(place, matchers.SimpleString())}

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        inner = original_node.raw_value
        if original_node not in self.quoted or not _QUOTED.search(inner) or not _is_expression(inner):
            return updated_node

        def replaced(match: re.Match[str]) -> str:
            lead, _, name = match[0].rpartition(".")
            old = name if lead in self.whole and name in MOVED else self.names.get(match[0])
            return self.new(old).value if old else match[0]

        rewritten = re.sub(r"(?<![\w.])[A-Za-z_][\w.]*", replaced, inner)
        return updated_node.with_changes(value=updated_node.value.replace(inner, rewritten))

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.visit(_TypingImports(self.needed))


class _TypingImports(cst.CSTTransformer):
    """The first import of typing is joined by those that the module needs now; of typing's own, what moved is gone."""

    def __init__(self, needed: Mapping[str, set[str]]) -> None:
        super().__init__()
        self.needed = dict(needed)

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        small = original_node.body[0]
        if len(original_node.body) != 1 or not _of_typing(small):
            return updated_node
        lines = [
            cst.SimpleStatementLine([cst.parse_statement(f"from {module} import {', '.join(sorted(names))}").body[0]])  # type: ignore[union-attr,list-item]
            for module, names in sorted(self.needed.items())
        ]
        self.needed = {}
        kept: list[cst.BaseStatement] = []
        if isinstance(small, cst.Import):
            kept = [updated_node]
        elif isinstance(small, cst.ImportFrom) and not isinstance(small.names, cst.ImportStar):
            names = [alias for alias in small.names if alias.evaluated_name not in MOVED]
            if names:
                if not small.lpar:
                    names[-1] = names[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                kept = [updated_node.with_changes(body=[small.with_changes(names=names)])]
        whole = [*lines, *kept] or [cst.SimpleStatementLine([cst.Pass()])]
        whole[0] = whole[0].with_changes(leading_lines=original_node.leading_lines)
        whole[1:] = [line.with_changes(leading_lines=[]) for line in whole[1:]]
        return cst.FlattenSentinel(whole)


def _of_typing(node: cst.BaseSmallStatement) -> bool:
    if isinstance(node, cst.ImportFrom):
        return isinstance(node.module, cst.Name) and node.module.value == "typing" and not node.relative
    return isinstance(node, cst.Import) and any(alias.evaluated_name == "typing" for alias in node.names)


def _is_expression(text: str) -> bool:
    try:
        parse_expression(text.strip())
    except (SyntaxError, ValueError):
        return False
    return True


def _without_import(code: str, alias: str) -> str:
    """Without `import typing [as alias]` where nothing speaks of it any more."""
    imported = "typing" if alias == "typing" else rf"typing\s+as\s+{re.escape(alias)}"
    return re.sub(rf"(?m)^import\s+{imported}[ \t]*\n", "", code, count=1)
