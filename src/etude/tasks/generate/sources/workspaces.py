"""Which parts of a tree are projects of their own: members of a monorepo, or the packages that one release ships side by side.

A folder is one by its own manifest (a member of npm's or pnpm's workspaces, of uv's, Cargo's or Go's, or simply a second `pyproject.toml`),
else by being one of several top-level Python packages. Tests, documents, examples and what is copied from elsewhere are none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

MANIFESTS = frozenset(("pyproject.toml", "setup.py", "setup.cfg", "package.json", "Cargo.toml", "go.mod", "pom.xml"))
SOURCES = ("", "src", "lib")
ASIDE = frozenset(
    (
        *("test", "tests", "testing", "testdata", "spec", "fixtures", "unittests", "__tests__", "docs", "doc", "examples", "example"),
        *("samples", "demo", "demos", "benchmarks", "benchmark", "bench", "tools", "scripts", "ci", "bin", "debian", "node_modules", "build"),
        *("dist", "vendor", "_vendor", "vendored", "third_party", "extern", "_vendored", "templates", "template", "packaging"),
    )
)  # fmt: skip


def workspaces(files: Mapping[str, str]) -> list[str]:
    """Their folders; empty for a project that is one."""
    inner = sorted(
        {folder for path in files if (folder := _holds_manifest(path)) and f"{folder}/__init__.py" not in files}
    )
    packages = sorted({folder for path in files if (folder := _top_package(path))})
    free = [folder for folder in packages if workspace_of(folder, inner) is None]
    found = [*inner, *free] if inner else free
    return found if len(found) > 1 else []


def workspace_of(path: str, folders: Iterable[str]) -> str | None:
    """The innermost that holds the path."""
    holding = [folder for folder in folders if path == folder or path.startswith(f"{folder}/")]
    return max(holding, key=len, default=None)


def concerned_workspaces(paths: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The workspaces that the paths lie in; what lies in none is of the whole."""
    known = list(folders)
    return sorted({found for path in paths if (found := workspace_of(path, known))})


def _holds_manifest(path: str) -> str:
    place = PurePosixPath(path)
    inside = place.name in MANIFESTS and len(place.parts) > 1 and not _is_aside(place.parts[:-1])
    return str(place.parent) if inside else ""


def _top_package(path: str) -> str:
    place = PurePosixPath(path)
    folder = place.parent
    top = (
        place.name == "__init__.py"
        and str(folder.parent).replace(".", "", 1) in SOURCES
        and str(folder) not in (".", *SOURCES)
    )
    return str(folder) if top and not _is_aside(folder.parts) else ""


def _is_aside(parts: Iterable[str]) -> bool:
    return any(
        part.lower() in ASIDE
        or part.lower().endswith("tests")
        or part.lower().startswith("test-")
        or part.startswith(".")
        for part in parts
    )
