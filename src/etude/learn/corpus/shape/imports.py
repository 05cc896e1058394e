"""Which files of a project a file of it depends on: Python's imports, JavaScript's and TypeScript's, C's includes.

Only what the text names and the same project holds counts; a name from elsewhere is no file. Python's statements are found by a
regular expression that steps over strings and comments and are then read by `ast` (the whole file through `ast` takes
six times as long); JavaScript's and C's are read by expressions of the same kind.
"""

from __future__ import annotations

import ast
import posixpath
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from etude.core.bounded_python import parse_python

PYTHON = (".py", ".pyi")
SCRIPT = (".ts", ".tsx", ".d.ts", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs", ".vue", ".svelte")
C = (".c", ".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx", ".inl", ".m", ".mm", ".cu", ".cuh")

# Strings and comments are matched so that what looks like an import inside them is passed over.
PYTHON_IMPORT = re.compile(
    r"""(?:"{3}(?:[^"\\]++|\\.|"(?!""))*+"{3}|'{3}(?:[^'\\]++|\\.|'(?!''))*+'{3}"""
    r"""|"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+'|\#[^\n]*+)"""
    r"""|^[ \t]*+(?P<statement>(?:from[ \t]+(?:[\w. \t]|\\\n)+?[ \t]import|import)\b(?:[ \t]*\([^)]*\)|(?:[^\n\\#;]|\\\n)*+))""",
    re.MULTILINE | re.DOTALL,
)
# Where such a statement may begin; none after the last of them.
PYTHON_PLACE = re.compile(r"^[ \t]*(?:from|import)\b", re.MULTILINE)
SCRIPT_PLACE = re.compile(r"""\b(?:from|import|require)\s*\(?\s*["']""")
SCRIPT_IMPORT = re.compile(
    r"""(?://[^\n]*+|/\*.*?\*/)"""
    r"""|\b(?:from|import|require)\s*+\(?\s*+(?:"(?P<double>[^"\n]++)"|'(?P<single>[^'\n]++)')"""
    r"""|(?:"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+'|`(?:[^`\\]++|\\.)*+`)""",
    re.DOTALL,
)
C_INCLUDE = re.compile(
    r"""/\*.*?\*/|//[^\n]*|^[ \t]*\#[ \t]*(?:include|import)[ \t]*"(?P<name>[^"\n]+)\"""", re.MULTILINE | re.DOTALL
)


def dependencies(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Path -> the project's paths that it imports, sorted, itself left out. `texts` is path -> text, all files of one project."""
    names = _PythonNames(texts)
    by_basename: dict[str, list[str]] = defaultdict(list)
    for path in sorted(texts):
        by_basename[posixpath.basename(path)].append(path)
    found: dict[str, list[str]] = {}
    for path, text in texts.items():
        if path.endswith(PYTHON):
            targets = names.resolve(path, python_imports(text))
        elif path.endswith(SCRIPT):
            targets = _script_targets(path, script_imports(text), texts)
        elif path.endswith(C):
            targets = _c_targets(path, c_includes(text), texts, by_basename)
        else:
            targets = set()
        found[path] = sorted(targets - {path})
    return found


def python_imports(text: str) -> list[tuple[int, str, str]]:
    """(level, module, name) for each imported name: `from ..a import b` is (2, "a", "b"), `import a.b` (0, "a.b", "")."""
    statements = [found["statement"] for found in _until_last(PYTHON_IMPORT, PYTHON_PLACE, text) if found["statement"]]
    trees = _parsed("\n".join(statements))
    if trees is None:  # one of them is none after all: each for itself
        trees = [node for statement in statements for node in _parsed(statement) or []]
    found: list[tuple[int, str, str]] = []
    for node in trees:
        if isinstance(node, ast.Import):
            found += [(0, alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [(node.level, node.module or "", alias.name) for alias in node.names]
    return found


def _parsed(source: str) -> list[ast.stmt] | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return parse_python(source).body
    except (SyntaxError, ValueError):
        return None


def script_imports(text: str) -> list[str]:
    """The specifiers of `import`, `export … from`, `require(…)` and `import(…)`."""
    return [
        name for found in _until_last(SCRIPT_IMPORT, SCRIPT_PLACE, text) if (name := found["double"] or found["single"])
    ]


def _until_last(pattern: re.Pattern[str], place: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The careful pattern's matches as far as the quick one sees a place: imports are at the head, and the rest is long."""
    places = [found.start() for found in place.finditer(text)]
    if places:
        for found in pattern.finditer(text):
            if found.start() > places[-1]:
                return
            yield found


def c_includes(text: str) -> list[str]:
    """The names of `#include "…"`."""
    return [found["name"] for found in C_INCLUDE.finditer(text) if found["name"]]


class _PythonNames:
    """Dotted names of a project's modules. A folder without `__init__.py` may be a root (`src/`, `tests/`), so a module has a
    name from the top and one from each such folder above it."""

    def __init__(self, paths: Iterable[str]) -> None:
        modules = sorted(path for path in paths if path.endswith(PYTHON))
        packages = {posixpath.dirname(path) for path in modules if posixpath.basename(path).startswith("__init__.")}
        self._paths: dict[str, list[str]] = defaultdict(list)
        for path in modules:
            parts = posixpath.splitext(path)[0].split("/")
            for start in range(len(parts)):
                root = "/".join(parts[:start])
                if not root or root not in packages:
                    name = ".".join(parts[start:])
                    self._paths[name.removesuffix(".__init__")].append(path)

    def resolve(self, path: str, imports: Iterable[tuple[int, str, str]]) -> set[str]:
        found = set()
        for level, module, name in imports:
            if level:
                above = path.split("/")[:-level]
                module = ".".join([*above, module] if module else above)
            target = self._nearest(f"{module}.{name}" if module else name, path) if name and name != "*" else None
            while target is None and module:
                target = self._nearest(module, path)
                module = "" if name else module.rpartition(".")[0]  # `import a.b.c` binds a: what there is of it counts
            if target:
                found.add(target)
        return found

    def _nearest(self, name: str, path: str) -> str | None:
        return _nearest(self._paths.get(name, ()), path)


def _script_targets(path: str, specifiers: Iterable[str], texts: Mapping[str, str]) -> set[str]:
    found = set()
    for specifier in specifiers:
        if not specifier.startswith("."):
            continue
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(path), specifier))
        stem = re.sub(r"\.[mc]?jsx?$", "", whole)  # TypeScript names the file that will be there
        candidates = [whole, *(stem + ending for ending in SCRIPT), *(f"{whole}/index{ending}" for ending in SCRIPT)]
        target = next((candidate for candidate in candidates if candidate in texts), None)
        if target:
            found.add(target)
    return found


def _c_targets(
    path: str, names: Iterable[str], texts: Mapping[str, str], by_basename: Mapping[str, list[str]]
) -> set[str]:
    found = set()
    for name in names:
        neighbour = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
        ending = re.sub(r"^(?:\.\.?/)+", "", posixpath.normpath(name))
        elsewhere = [p for p in by_basename.get(posixpath.basename(name), ()) if f"/{p}".endswith(f"/{ending}")]
        target = neighbour if neighbour in texts else _nearest(elsewhere, path)
        if target:
            found.add(target)
    return found


def _nearest(candidates: Iterable[str], path: str) -> str | None:
    """The one that shares most folders with `path`; then the first by name."""
    folders = path.split("/")[:-1]

    def shared(candidate: str) -> int:
        return len(posixpath.commonprefix([folders, candidate.split("/")[:-1]]))

    return min(candidates, key=lambda candidate: (-shared(candidate), candidate), default=None)
