"""The interface section: signatures of the names that hidden tests need, taken from the reference; bodies never."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from etude.core.bounded_python import parse_python
from etude.tasks.generate.prompts.checks import needed_names, words
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.task import Task

# function f(a, b)   f(a, b) {   const f = (a, b) =>   class C extends D   func f(a int) error   fn f(a: i32) -> i32
_LEAD = r"(?m)^[ \t]*((?:(?:export|default|async|static|pub|public|private|function\*?|const|let|func|fn)[ \t]+)*"
_PARAMETERS = r"[ \t]*(?:=[ \t]*(?:async[ \t]*)?)?\((?:[^()]|\([^()]*\))*\)[^\n{};=]*)"


def with_interface(task: Task, facts: Facts) -> Facts:
    """The facts with what is missing of their interface."""
    spoken = words(
        " ".join(
            [facts.headline, facts.expected, facts.actual, facts.place, *facts.steps, *facts.notes, *facts.interface]
        )
    )
    missing = sorted(needed_names(task) - spoken)
    return (
        replace(facts, interface=(*facts.interface, *(signature(task, name) for name in missing))) if missing else facts
    )


def signature(task: Task, name: str) -> str:
    """How the name is used, in one line; the bare name where the reference does not define it by a signature."""
    for path, source in sorted(task.solution.items()):
        found = _python(source, name) if path.endswith(".py") else _other(source, name)
        if found:
            return found
    return name


def _python(source: str, name: str) -> str:
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError):
        return ""
    for owner, node in _definitions(tree, ""):
        if node.name != name:
            continue
        if isinstance(node, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in node.bases)
            return f"class {owner}{name}({bases})" if bases else f"class {owner}{name}"
        returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        return f"{kind} {owner}{name}({ast.unparse(node.args)}){returns}"
    return ""


def _definitions(
    node: ast.AST, owner: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield owner, child
        elif isinstance(child, ast.ClassDef):
            yield owner, child
            yield from _definitions(child, f"{owner}{child.name}.")
        else:
            yield from _definitions(child, owner)


def _other(source: str, name: str) -> str:
    found = re.search(f"{_LEAD}{re.escape(name)}{_PARAMETERS}", source)
    return " ".join(found[1].split()) if found else ""
