"""The size and shape of the source tree, as figures: `python tests/repository/shape.py [--json]` prints them.

The tests of this folder hold the tree to the same figures.
"""

from __future__ import annotations

import ast
import io
import json
import re
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "etude"
LONGEST_FUNCTION = 40  # lines, with the decorators left out
SMALL_FILE = 80  # lines; a smaller file needs two importers or a place among plug-ins

# Folders whose files are one plug-in each, and are named by a registry, a command line or an import path.
PLUGINS = (
    "etude.agent.harness.tools",
    "etude.agent.harness.web",
    "etude.agent.policy.wire",
    "etude.cli",
    "etude.evaluate.bench.suites",
    "etude.evaluate.report.board.sources",
    "etude.evaluate.report.pages",
    "etude.pipeline.run.stages",
    "etude.sandbox.inside",
    "etude.sandbox.launch",
    "etude.tasks.cheats",
    "etude.tasks.generate.exercises",
    "etude.tasks.generate.generators",
    "etude.tasks.generate.install.agents",
    "etude.tasks.graders",
    "etude.tasks.importers",
    "etude.tasks.running.channels",
    "etude.tasks.running.parsers",
)

# Words that hide what a sentence says; docs, help, errors, comments and names are written without them.
BANNED = ("told", "anew", "whoever", "nobody", "so many", "is what", "comes to", "stands", "beside", "by hand of")
BANNED_WORDS = re.compile(rf"\b({'|'.join(BANNED)})\b", re.IGNORECASE)


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted module name to syntax tree, for every Python file below src/etude."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in paths().items()}


@cache
def paths() -> dict[str, Path]:
    """Dotted module name to file."""
    return {
        ".".join(("etude", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in sorted(SOURCE.rglob("*.py"))
    }


def lines_of(path: Path) -> int:
    """Lines of a file, blank ones included."""
    return len(path.read_text(encoding="utf-8").splitlines())


def classes() -> dict[str, list[str]]:
    """Class name to the modules that define it, nested classes included."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    return dict(found)


def long_functions() -> list[str]:
    """`module:function lines` of every function that is longer than LONGEST_FUNCTION."""
    return [
        f"{module}:{node.name} {node.end_lineno - node.lineno + 1}"
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.end_lineno is not None
        and node.end_lineno - node.lineno >= LONGEST_FUNCTION
    ]


def banned_words(*folders: Path) -> Counter[str]:
    """Occurrences of banned words per file of these folders (Python and Markdown), as whole words of code and prose."""
    return Counter(
        {
            str(path.relative_to(ROOT)): count
            for folder in folders
            for path in sorted([*folder.rglob("*.py"), *folder.rglob("*.md")])
            if (count := len(BANNED_WORDS.findall(path.read_text(encoding="utf-8"))))
        }
    )


def prose(path: Path) -> dict[int, str]:
    """Line number to text of every line of a docstring or comment of a Python file; code in backticks is left out."""
    text = path.read_text(encoding="utf-8")
    found = {
        token.start[0]: token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(
            node
        ):
            string = node.body[0]
            found |= {number: lines[number - 1] for number in range(string.lineno, (string.end_lineno or 0) + 1)}
    return {number: re.sub(r"`[^`]*`", "", line) for number, line in sorted(found.items())}


def importers() -> dict[str, set[str]]:
    """Module to the modules that import it; imports inside functions and for types count too."""
    known = modules()
    found: dict[str, set[str]] = {name: set() for name in known}
    for module, tree in known.items():
        for name in _imported(tree):
            if name in found and name != module:
                found[name].add(module)
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))


def files_without_reason() -> list[str]:
    """Small modules with exactly one importer that are no plug-ins: candidates to join their importer."""
    users = importers()
    return [
        name
        for name, path in paths().items()
        if path.name != "__init__.py"
        and len(users[name]) == 1
        and lines_of(path) <= SMALL_FILE
        and not name.startswith(tuple(f"{folder}." for folder in PLUGINS))
    ]


def shape() -> dict[str, Any]:
    """All figures of the tree. `__init__.py` files, which hold a docstring only, are no modules here."""
    files = {name: path for name, path in paths().items() if path.name != "__init__.py"}
    sizes = [lines_of(path) for path in files.values()]
    single = [name for name, users in importers().items() if name in files and len(users) == 1]
    return {
        "packages": len([path for path in SOURCE.iterdir() if (path / "__init__.py").exists()]),
        "modules": len(sizes),
        "lines": sum(sizes),
        "median_lines": statistics.median(sizes),
        "longest_file": max(sizes),
        "single_importer_share": round(len(single) / len(sizes), 3),
        "small_files_with_one_importer": len(files_without_reason()),
        "functions_over_40_lines": len(long_functions()),
        "repeated_class_names": len([name for name, places in classes().items() if len(places) > 1]),
        "banned_words_src": banned_words(SOURCE).total(),
        "banned_words_benchmarks": banned_words(ROOT / "benchmarks").total(),
        "banned_words_tests": banned_words(ROOT / "tests").total(),
        "banned_words_docs": banned_words(ROOT / "docs").total(),
    }


if __name__ == "__main__":
    figures = shape()
    if sys.argv[1:] == ["--json"]:
        print(json.dumps(figures))
    elif sys.argv[1:]:
        sys.exit(f"unknown arguments {' '.join(sys.argv[1:])}: give --json or nothing")
    else:
        print("\n".join(f"{key:26} {value:,}" for key, value in figures.items()))
