"""Tests that show a bug are absent from the agent's copy until grading (promise 10): cut out of their files, the rest kept.

Pure text surgery by the syntax tree's line numbers, so that comments and layout of what stays are the release's own.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping

from etude.core.bounded_python import parse_python


def hidden(tests: Mapping[str, str], fails: Collection[str]) -> dict[str, str]:
    """The test files that change when the tests named `fails` (JUnit names) are taken out, without them.

    A test that a class inherits is taken out where it is written, hence from its sister classes too. Raises ValueError
    for a name that occurs nowhere.
    """
    where: dict[str, set[str]] = {}
    for name in fails:
        places = list(_places(tests, name))
        if not places:
            raise ValueError(f"no test {name} to hide")
        for path, function in places:
            where.setdefault(path, set()).add(function)
    return {path: without(tests[path], names) for path, names in where.items()}


def without(text: str, names: Collection[str]) -> str:
    """`text` without its functions called `name` or `Class.name`."""
    lines = text.splitlines(keepends=True)
    for node, name in reversed(functions(text)):
        if name in names:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            indent = " " * node.col_offset
            # A class that loses its only test must stay a valid one.
            lines[first - 1 : node.end_lineno] = [f"{indent}pass\n"] if indent else []
    return "".join(lines)


def functions(text: str) -> list[tuple[ast.FunctionDef, str]]:
    """Functions of a module and of its classes, in the order they stand."""
    body = parse_python(text).body
    found = [(node, node.name) for node in body if isinstance(node, ast.FunctionDef)]
    for holder in body:
        if isinstance(holder, ast.ClassDef):
            found += [(n, f"{holder.name}.{n.name}") for n in holder.body if isinstance(n, ast.FunctionDef)]
    return sorted(found, key=lambda pair: pair[0].lineno)


def _places(tests: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """Where `tests.test_more.ZipTests::test_it[1]` is written: file and `ZipTests.test_it`."""
    holder, _, test = name.partition("::")
    test = test.partition("[")[0]
    for path, text in tests.items():
        if not path.endswith(".py"):
            continue
        module = path.removesuffix(".py").replace("/", ".")
        inner = holder.removeprefix(module).lstrip(".") if holder == module or holder.startswith(f"{module}.") else None
        if inner is not None and (own := f"{inner}.{test}".lstrip(".")) in {n for _, n in functions(text)}:
            yield path, own
            return
    for path, text in tests.items():
        if path.endswith(".py"):
            yield from ((path, n) for _, n in functions(text) if n.endswith(f".{test}"))
