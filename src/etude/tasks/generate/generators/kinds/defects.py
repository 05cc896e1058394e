"""Small defects of Python functions as edits: what graders run tests, examples and builds against, and what a review must find.

Not tasks by themselves (generators/bugs makes those): many cheap variants of a module are wanted here, each one edit on one line whose
rest stays byte by byte. Found by `ast`, in the order in which they stand.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generators.kinds.positions import Positions

COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.In: ("in", "not in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Defect:
    """One edit of a file. `function`: dotted name within the module; `what`: what is wrong, as a reviewer would say it."""

    path: str
    at: int
    old: str
    new: str
    line: int
    operator: str
    function: str
    what: str

    def edit(self) -> dict[str, Any]:
        return {"path": self.path, "at": self.at, "old": self.old, "new": self.new}


def defects(path: str, text: str) -> list[Defect]:
    """Every defect of the module's functions; empty for what does not parse, or has carriage returns."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError):
        return []
    if "\r" in text or "\f" in text:
        return []
    where = Positions(text)
    found: dict[tuple[int, str, str], Defect] = {}
    for name, function in functions(tree):
        for at, old, new, operator, what in _of(function, where):
            line = text.count("\n", 0, at) + 1
            found.setdefault((at, old, new), Defect(path, at, old, new, line, operator, name, what))
    return sorted(found.values(), key=lambda one: (one.at, one.new))


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Functions of the module and methods of its classes, by dotted name."""
    for node in tree.body:
        if isinstance(node, Function):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{inner.name}", inner) for inner in node.body if isinstance(inner, Function))


def spread_by_function(found: Sequence[Defect]) -> list[Defect]:
    """The same, one of each function in turn: the first few tell of the whole module."""
    turns: dict[str, list[Defect]] = {}
    for one in found:
        turns.setdefault(one.function, []).append(one)
    longest = max(map(len, turns.values()), default=0)
    return [row[number] for number in range(longest) for row in turns.values() if number < len(row)]


Edit = tuple[int, str, str, str, str]  # at, old, new, operator, what


def _of(function: Function, where: Positions) -> Iterator[Edit]:
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue  # the docstring
        for node in _inside(statement):
            yield from _edits(node, where)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """Without annotations and format specifications, whose places `ast` reports wrongly or which are never run."""
    if isinstance(node, ast.JoinedStr | ast.arguments):
        return
    yield node
    for name, child in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for one in child if isinstance(child, list) else (child,):
            if isinstance(one, ast.AST):
                yield from _inside(one)


def _edits(node: ast.AST, where: Positions) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            if type(op) in COMPARE:
                yield from _between(left, right, where, *COMPARE[type(op)], "comparison")
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _text(node.left) and not _text(node.right):
        yield from _between(node.left, node.right, where, *ARITHMETIC[type(node.op)], "arithmetic")
    elif isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        if len(node.values) == 2:
            yield from _between(node.values[0], node.values[1], where, old, new, "logic")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start, end = where.span(node)[0], where.span(node.operand)[0]
        yield start, where.text[start:end], "", "negation", "the condition is the wrong way round: a `not` is missing"
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        yield from _constant(node, where)
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        start, end = where.span(node)
        if "\n" not in where.text[start:end]:
            yield start, where.text[start:end], "return None", "return", "the result is computed and not returned"
    elif isinstance(node, ast.If) and not isinstance(node.test, ast.Compare | ast.UnaryOp | ast.BoolOp):
        start, end = where.span(node.test)
        if "\n" not in where.text[start:end]:
            old = where.text[start:end]
            yield start, old, f"not ({old})", "negation", "the condition is the wrong way round"


def _between(left: ast.expr, right: ast.expr, where: Positions, old: str, new: str, operator: str) -> Iterator[Edit]:
    """The operator between two operands, where nothing else (a comment, a bracket of another operand) could be meant."""
    start, end = where.span(left)[1], where.span(right)[0]
    gap = where.text[start:end]
    if gap.count(old) == 1 and not set(gap.replace(old, "", 1)) - set(" ()"):
        yield start + gap.index(old), old, new, operator, f"`{new}` stands where `{old}` is right"


def _constant(node: ast.Constant, where: Positions) -> Iterator[Edit]:
    start, end = where.span(node)
    old = where.text[start:end]
    if isinstance(node.value, bool):
        yield (
            start,
            old,
            str(not node.value),
            "boolean",
            f"the flag is `{not node.value}` where `{node.value}` is right",
        )
    elif isinstance(node.value, int) and old.isdecimal() and node.value < 1000:
        yield start, old, str(node.value + 1), "constant", f"off by one: `{node.value + 1}` where `{old}` is right"


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
