"""Takes definitions out of a module with what only spoke of them: imports, exports, registrations; and out of test files their tests.

By the places that the syntax tree tells, so that every other character stays, and a test file of ten thousand lines costs milliseconds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generators.deletion.index import uses
from etude.tasks.generate.generators.kinds.positions import Positions

Cut = tuple[int, int, str]  # characters from, to, and the replacement
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BODIES = ("body", "orelse", "finalbody")


def without(text: str, names: Collection[str]) -> str:
    """The module without these top-level functions and classes. Raises SyntaxError."""
    return _Cutting(text, frozenset(names)).cut()[0]


def tests_without(text: str, names: Collection[str]) -> str | None:
    """The test file without the tests that use these names; None where the file can't do without them, or nothing would be left.
    Raises SyntaxError."""
    removed = frozenset(names)
    users = frozenset(name for name, used in functions(text) if removed & used)
    try:
        trimmed, tree = _Cutting(text, removed, users).cut()
    except (SyntaxError, ValueError):
        parse_python(text)  # raises for what can't be read at all
        return None
    left = any(isinstance(node, ast.FunctionDef) and node.name.startswith("test") for node in ast.walk(tree))
    return trimmed if left and not removed & uses(tree) else None


@lru_cache(maxsize=512)  # every feature of a project asks the same of the same test files
def functions(text: str) -> tuple[tuple[str, frozenset[str]], ...]:
    """Functions at the top or in a class of a test file, each with the names it uses. Raises SyntaxError."""
    found: list[tuple[str, frozenset[str]]] = []
    for node in parse_python(text).body:
        for inner in (node, *(node.body if isinstance(node, ast.ClassDef) else ())):
            if isinstance(inner, _FUNCTIONS):
                found.append((inner.name, uses(inner)))
    return tuple(found)


class _Cutting:
    """`users`: functions to take out as well, in classes too."""

    def __init__(self, text: str, names: frozenset[str], users: frozenset[str] = frozenset()) -> None:
        self.source, self.names, self.users = text, names, users
        self.where = Positions(text)
        self.lines = [f"{line}\n" for line in text.split("\n")]  # as `ast` counts them: form feeds end none

    def cut(self) -> tuple[str, ast.Module]:
        """The text and its tree. Raises SyntaxError, also where two statements share a line that one of them has to leave."""
        found = self.source
        for start, end, new in sorted(self._cuts(parse_python(self.source).body, top=True), reverse=True):
            found = found[:start] + new + found[end:]
        return found, parse_python(found)

    def _cuts(self, body: Sequence[ast.stmt], *, top: bool) -> Iterator[Cut]:
        """Of one block; a block that would be left without a statement gets `pass`."""
        gone = [node for node in body if self._gone(node, top)]
        for node in gone:
            yield from self._removed(node, alone=len(gone) == len(body) and not top and node is gone[0])
        for node in body:
            if node in gone:
                continue
            if isinstance(node, ast.ImportFrom):
                left_out = [alias.name in self.names for alias in node.names]
                if any(left_out):
                    end = self.where.span(node)[1]
                    spans = [self._place(alias) for alias in node.names]
                    yield self._fewer(spans, left_out, end - (self.source[end - 1] == ")"))
            elif top:
                yield from self._listed(node)
            for inner in self._blocks(node):
                yield from self._cuts(inner, top=False)

    def _blocks(self, node: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
        for name in _BODIES:
            if inner := getattr(node, name, None):
                yield inner
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield handler.body

    def _gone(self, node: ast.stmt, top: bool) -> bool:
        if isinstance(node, _FUNCTIONS):
            return (top and node.name in self.names) or node.name in self.users
        if isinstance(node, ast.ClassDef):
            return (top and node.name in self.names) or bool(
                self.users and all(self._gone(n, False) for n in node.body)
            )
        return isinstance(node, ast.ImportFrom) and all(alias.name in self.names for alias in node.names)

    def _removed(self, node: ast.stmt, *, alone: bool) -> Iterator[Cut]:
        """Whole lines, with decorators, and with the comments and empty lines above."""
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]) - 1
        last = node.end_lineno or node.lineno
        start = self.where.at(first + 1, 0)
        end = min(self.where.at(last, 0) + len(self.lines[last - 1]), len(self.source))
        before = self.source[start : self.where.at(node.lineno, node.col_offset)]
        behind = self.source[self.where.span(node)[1] : end].strip()
        if (behind and not behind.startswith("#")) or not re.match(r"\s*(@|$)", before):
            raise SyntaxError(f"line {node.lineno} holds several statements")
        if alone:
            yield start, end, " " * node.col_offset + "pass\n"
            return
        while first > 0 and re.match(r"\s*(#|$)", self.lines[first - 1]):
            first -= 1
        yield self.where.at(first + 1, 0), end, ""

    def _listed(self, node: ast.AST) -> Iterator[Cut]:
        """Elements of lists of exports and registrations, outside functions and classes."""
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            return
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            gone = [self._named(one) for one in node.elts]
            spans = [self.where.span(one) for one in node.elts]
        elif isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
            gone = [isinstance(value, ast.Name) and value.id in self.names for value in node.values]
            pairs = zip(node.keys, node.values, strict=True)
            spans = [(self.where.span(key)[0], self.where.span(value)[1]) for key, value in pairs if key is not None]
        else:
            gone, spans = [], []
        if any(gone) and isinstance(node, ast.expr):
            end = self.where.span(node)[1]
            yield self._fewer(spans, gone, end - (self.source[end - 1] in ")]}"), one=isinstance(node, ast.Tuple))
            return
        for inner in ast.iter_child_nodes(node):
            yield from self._listed(inner)

    def _place(self, alias: ast.alias) -> tuple[int, int]:
        return self.where.at(alias.lineno, alias.col_offset), self.where.at(
            alias.end_lineno or 1, alias.end_col_offset or 0
        )

    def _named(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.names
        return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in self.names

    def _fewer(self, spans: Sequence[tuple[int, int]], gone: Sequence[bool], end: int, *, one: bool = False) -> Cut:
        """The elements between commas that stay, up to `end`. `one`: a single one needs its comma."""
        starts = [start for start, _ in spans] + [end]
        kept = [number for number, left in enumerate(gone) if not left]
        parts = [self.source[starts[number] : starts[number + 1]] for number in kept]
        if kept and gone[-1]:
            behind = self.source[spans[-1][1] : end]  # a comma, a comment, the line's end
            comma = "," if "," in behind or (one and len(kept) == 1) else ""
            parts[-1] = self.source[slice(*spans[kept[-1]])] + comma + re.sub(r"^[^\n]*", "", behind)
        elif one and len(kept) == 1 and "," not in parts[0][spans[kept[0]][1] - starts[kept[0]] :]:
            parts[0] += ","
        return spans[0][0], end, "".join(parts)
