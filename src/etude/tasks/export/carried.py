"""The modules that grade inside an exported task's machine, as files: those that `here` imports, directly or through others, and no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import PurePosixPath

ROOT = "etude.tasks.export.here"
INSIDE = "etude/tasks/running/inside"


@cache
def runtime_files() -> dict[str, bytes]:
    """By path below the folder that is put on `sys.path`. Raises ModuleNotFoundError for an import that is neither ours nor the library's."""
    found: dict[str, bytes] = {}
    waiting = [ROOT]
    while waiting:
        module = waiting.pop()
        path = _path(module)
        if path in found:
            continue
        data = _resource(path)
        found[path] = data
        waiting += _imports(ast.parse(data))
        waiting += [module.rpartition(".")[0]] if "." in module else []
    scripts = files("etude.tasks.running") / "inside"
    for entry in scripts.iterdir():
        if entry.name.startswith("etude_") and entry.is_file():
            found[f"{INSIDE}/{entry.name}"] = entry.read_bytes()
    return dict(sorted(found.items()))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Modules of ours that are imported when the module is; what only a type checker imports is not."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "etude":
            yield node.module
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if _is_module(inner):
                    yield inner
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "etude")


def _is_module(module: str) -> bool:
    package, _, name = module.rpartition(".")
    if not (files("etude") / PurePosixPath(*package.split(".")[1:])).is_dir():
        return False
    place = files("etude") / PurePosixPath(*package.split(".")[1:])
    return (place / f"{name}.py").is_file() or (place / name / "__init__.py").is_file()


def _path(module: str) -> str:
    parts = module.split(".")
    folder = files("etude").joinpath(*parts[1:])
    return "/".join(parts) + ("/__init__.py" if folder.is_dir() else ".py")


def _resource(path: str) -> bytes:
    return files("etude").joinpath(*path.split("/")[1:]).read_bytes()
