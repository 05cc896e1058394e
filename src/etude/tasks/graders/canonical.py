"""A project's modules without what a refactoring may word as it likes: how things are imported, order of definitions, docstrings, layout.

Every use of a global name becomes the dotted name of what it means, followed through imports and re-exports: `helper()` after
`from pkg.a import helper` and `pkg.a.helper()` after `import pkg.a` are the same. What is left of two trees can then be compared.
"""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from etude.core.bounded_python import parse_python

MAX_HOPS = 20  # of re-exports, which may go round in a circle
DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class UnparsableModule(Exception):
    """A module that is no Python; says which."""


@dataclass
class Program:
    """`trees` and `bound` (what a module's top-level names mean) by dotted name; `packages`: those that are an `__init__.py`."""

    trees: dict[str, ast.Module] = field(default_factory=dict)
    bound: dict[str, dict[str, str]] = field(default_factory=dict)
    packages: frozenset[str] = frozenset()

    def resolve_name(self, dotted: str) -> str:
        """What a dotted name means, by the modules' own imports."""
        for _ in range(MAX_HOPS):
            module, _, rest = self.split(dotted)
            head, _, tail = rest.partition(".")
            meant = self.bound.get(module, {}).get(head, f"{module}.{head}")
            if not rest or meant == f"{module}.{head}":
                break
            dotted = f"{meant}.{tail}" if tail else meant
        return dotted

    def split(self, dotted: str) -> tuple[str, str, str]:
        """The longest part that is a module of this project, and what is asked of it."""
        module = dotted
        while module and module not in self.trees:
            module = module.rpartition(".")[0]
        return module, ".", dotted[len(module) :].lstrip(".") if module else dotted

    def statements(self, module: str, words: tuple[re.Pattern[str], str] | None = None) -> Counter[str]:
        """The module's top-level statements. `words`: a spelling in strings that makes no difference, and by what it is replaced."""
        canon = _Canon(self, module, self.bound[module], words)
        found: Counter[str] = Counter()
        for node in _bare(copy.deepcopy(self.trees[module]).body, canon, documented=True):
            found[ast.dump(node)] += 1
        return found


def program(files: Mapping[str, str], modules: Mapping[str, str]) -> Program:
    """`modules`: dotted names by path. Raises Unreadable."""
    trees: dict[str, ast.Module] = {}
    for path, name in modules.items():
        if path in files:
            try:
                trees[name] = parse_python(files[path])
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                raise UnparsableModule(f"{path} is no Python: {error}") from error
    packages = frozenset(name for path, name in modules.items() if path.endswith("__init__.py"))
    made = Program(trees, {}, packages)
    for name, tree in trees.items():
        made.bound[name] = bindings(list(top(tree.body)), name, name in packages)
    for name, tree in trees.items():
        for node in top(tree.body):
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                source = origin(node, name, name in packages)
                for each in _public(made, source):
                    made.bound[name].setdefault(each, f"{source}.{each}")
    return made


def bindings(nodes: list[ast.AST], module: str, package: bool) -> dict[str, str]:
    """What the names mean that these statements bind: imports by what they import, all else as the module's own."""
    found: dict[str, str] = {}
    for node in nodes:
        found |= imported_bindings(node, module, package)
        if isinstance(node, DEFINITION):
            found[node.name] = f"{module}.{node.name}"
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.For | ast.With):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    found.setdefault(inner.id, f"{module}.{inner.id}")
    return found


def imported_bindings(node: ast.AST, module: str, package: bool) -> dict[str, str]:
    """Names that an import statement binds."""
    if isinstance(node, ast.Import):
        return {a.asname or a.name.split(".")[0]: a.name if a.asname else a.name.split(".")[0] for a in node.names}
    if isinstance(node, ast.ImportFrom):
        source = origin(node, module, package)
        return {a.asname or a.name: f"{source}.{a.name}" for a in node.names if a.name != "*"}
    return {}


def origin(node: ast.ImportFrom, module: str, package: bool) -> str:
    """The module that is imported from, dots resolved."""
    if not node.level:
        return node.module or ""
    parts = module.split(".") if package else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def top(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Statements that run when the module is imported, those in conditions and `try` too, outside functions and classes."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for inner in ("body", "orelse", "finalbody"):
                yield from top(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                yield from top(handler.body)


def exports(tree: ast.Module) -> list[str]:
    """The strings of `__all__`."""
    found: list[str] = []
    for node in tree.body:
        if _is_all(node):
            found += [str(e.value) for e in ast.walk(node) if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    return found


def _is_all(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _public(made: Program, source: str) -> list[str]:
    if source not in made.trees:
        return []
    return exports(made.trees[source]) or [name for name in made.bound[source] if not name.startswith("_")]


def _bare(body: list[ast.stmt], canon: _Canon, documented: bool = False) -> list[ast.stmt]:
    """Statements without imports and docstrings."""
    found: list[ast.stmt] = []
    for number, node in enumerate(body):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if isinstance(node, ast.Import | ast.ImportFrom) or (text and documented and not number):
            continue
        if _is_all(node) and not any(isinstance(each, ast.Call) for each in ast.walk(node)):
            continue  # its words are compared by themselves
        node = canon.visit(node)
        if isinstance(node, ast.If) and not node.orelse and all(isinstance(each, ast.Pass) for each in node.body):
            continue  # a condition around imports alone
        found.append(node)
    return found


class _Canon(ast.NodeTransformer):
    def __init__(
        self, program: Program, module: str, scope: Mapping[str, str], words: tuple[re.Pattern[str], str] | None
    ):
        self.program, self.module, self.scope, self.words = program, module, scope, words

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and node.id in self.scope:
            return ast.Name(self.program.resolve_name(self.scope[node.id]), ast.Load())
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        value = self.visit(node.value)
        if isinstance(value, ast.Name) and value.id in self.program.trees and isinstance(node.ctx, ast.Load):
            return ast.Name(self.program.resolve_name(f"{value.id}.{node.attr}"), ast.Load())
        return ast.Attribute(value, node.attr, node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self.words and isinstance(node.value, str):
            return ast.Constant(self.words[0].sub(self.words[1], node.value))
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        bodies: dict[str, list[ast.stmt]] = {}
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                bare = _bare(inner, self, isinstance(node, DEFINITION) and name == "body")
                bodies[name] = bare or ([ast.Pass()] if inner else [])
                setattr(node, name, [])
        super().generic_visit(node)
        for name, inner in bodies.items():
            setattr(node, name, inner)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        inner = _Canon(self.program, self.module, self._inside(node), self.words)
        body = _bare(node.body, inner, documented=True) or [ast.Pass()]
        node.body = []
        found = ast.NodeTransformer.generic_visit(self, node)
        node.body = body
        return found

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def _inside(self, node: ast.AST) -> dict[str, str]:
        """The names that mean something global within a function: its own are not among them, unless it imports them."""
        own: set[str] = set()
        free: set[str] = set()
        local: dict[str, str] = {}
        for each in ast.walk(node):
            if isinstance(each, ast.arg):
                own.add(each.arg)
            elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
                own.add(each.id)
            elif isinstance(each, DEFINITION) and each is not node:
                own.add(each.name)
            elif isinstance(each, ast.Global):
                free.update(each.names)
            local |= imported_bindings(each, self.module, self.module in self.program.packages)
        kept = {name: meant for name, meant in self.scope.items() if name not in own - free}
        return kept | {name: meant for name, meant in local.items() if name not in own}
