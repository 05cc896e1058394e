"""Where a Python project keeps its packages and its tests. Read as data, nothing is run."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from etude.sandbox.spec import WORKDIR
from etude.tasks.protected import is_test
from etude.tasks.validation.change import PYTEST_FILE

_NO_TESTS = re.compile(
    r"(^|/)(build|dist|docs?|examples?|benchmarks?|vendor(ed)?|_vendor|third[-_]party|extern(als?)?|node_modules)/"
)
_ONE_FILE = re.compile(r"(^|/)tests?\.py$")
_ROOTS = ("src", "lib", "python")


def root(paths: Collection[str]) -> str:
    """The folder that imports start from: `src`, `lib`, or the tree itself."""
    for folder in _ROOTS:
        if any(re.match(rf"{folder}/[^/]+(/__init__)?\.py$", path) for path in paths):
            return folder
    return ""


def modules(paths: Collection[str]) -> list[str]:
    """Top-level packages, then modules, that are no tests."""
    prefix = f"{root(paths)}/" if root(paths) else ""
    inside = [path[len(prefix) :] for path in paths if path.startswith(prefix)]
    packages = sorted({path.split("/")[0] for path in inside if re.fullmatch(r"[A-Za-z_]\w*/__init__\.py", path)})
    single = sorted(path[:-3] for path in inside if re.fullmatch(r"[A-Za-z_]\w*\.py", path))
    idle = {"setup", "conftest", "noxfile", "tasks", "docs", "examples", "benchmarks", "tests", "test", "testing"}
    return [name for name in (*packages, *single) if name not in idle and not is_test(f"{name}.py")]


def tests(paths: Collection[str]) -> list[str]:
    """What pytest would collect, without what builds and examples carry; where it would collect nothing, files named `test.py` or
    `tests.py`, which projects with one file of tests give to it by name."""
    own = sorted(path for path in paths if not _NO_TESTS.search(path))
    return [path for path in own if PYTEST_FILE.search(path)] or [path for path in own if _ONE_FILE.search(path)]


def python_path(paths: Collection[str]) -> str:
    """What `PYTHONPATH` must be: the project is imported from the workdir, never from an index."""
    folder = root(paths)
    return f"{WORKDIR}/{folder}:{WORKDIR}" if folder else WORKDIR


def distribution(name: str, files: Mapping[str, str]) -> list[str]:
    """Names under which an index may have the project: to be denied."""
    names = re.findall(r"(?m)^Name:\s*(\S+)", files.get("PKG-INFO", ""))
    names += re.findall(
        r"(?m)^name\s*=\s*[\"']?([A-Za-z0-9._-]+)", files.get("pyproject.toml", "") + files.get("setup.cfg", "")
    )
    return sorted({re.sub(r"[-_.]+", "-", one).lower() for one in (name, *names)})
