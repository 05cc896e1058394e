"""Parts of a module that a change could have added: a few neighbouring functions, and the module without them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generators.kinds.defects import functions

Holder = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class CodeSlice:
    """Lines `first` to `last` of a file (from 1), decorators and comments above with them. `names`: what they define."""

    path: str
    first: int
    last: int
    names: tuple[str, ...]

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


def slices(path: str, text: str, fewest: int, most: int) -> list[CodeSlice]:
    """Runs of neighbouring functions of one holder (the module, or a class) that make up `fewest` to `most` lines each."""
    try:
        tree = parse_python(text)
    except (SyntaxError, ValueError):
        return []
    lines = text.splitlines()
    found: list[CodeSlice] = []
    for holder in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        known = {id(node): name for name, node in functions(tree)}
        run: list[CodeSlice] = []
        for node in holder.body:
            if id(node) not in known:
                run = []
                continue
            run.append(_part(path, node, known[id(node)], lines))
            if (whole := join_slices(run)).lines > most:
                run = run[-1:] if run[-1].lines <= most else []
            elif whole.lines >= fewest:
                # A class that would be left without a body is no change that anybody makes.
                if holder is tree or len(run) < len(holder.body) - 1:
                    found.append(whole)
                run = []
    return found


def cut_part(text: str, part: CodeSlice) -> str:
    """The file before the change that added the part."""
    lines = text.splitlines(keepends=True)
    return "".join([*lines[: part.first - 1], *lines[part.last :]])


def _part(path: str, node: ast.stmt, name: str, lines: Sequence[str]) -> CodeSlice:
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
    while first > 1 and lines[first - 2].lstrip().startswith("#") and _indent(lines[first - 2]) == node.col_offset:
        first -= 1
    last = node.end_lineno or node.lineno
    while last < len(lines) and not lines[last].strip():
        last += 1  # the empty lines behind belong to it
    return CodeSlice(path, first, last, (name,))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def join_slices(run: Sequence[CodeSlice]) -> CodeSlice:
    """Neighbouring parts as one."""
    return CodeSlice(run[0].path, run[0].first, run[-1].last, tuple(name for part in run for name in part.names))
