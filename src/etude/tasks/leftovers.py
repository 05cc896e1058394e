"""What lies in a tree and is no part of a project: histories, caches, compiled code, what its build put out, a solution.

Any of it may hold the work that a task asks for. Tools put their output into `build` and `dist` next to the manifest; a folder that is called so
and holds the project's own sources is none of that (`setuptools/command/build`, a package `build`, a release that ships nothing but `dist`), so
those two are judged by what else there is. Pure, over all paths of a tree at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from etude.tasks.protected import is_protected
from etude.tasks.splits import CODE

ALWAYS = re.compile(
    r"(^|/)(\.git|\.hg|\.svn|__pycache__|\.mypy_cache|\.pytest_cache|\.ruff_cache|\.tox|htmlcov|node_modules|[^/]+\.egg-info|tests_hidden)(/|$)"
    r"|(^|/)build/(lib|temp\.|bdist\.|scripts-)[^/]*/"
    r"|(^|/)dist/[^/]+\.(whl|egg|zip|tgz|tar\.\w+|exe|rpm|deb|dmg)$"
    r"|(^|/)solution/(solve|solution)\.\w+$"
    r"|\.(pyc|pyo|orig|rej|swp|patch|diff)$"
)
MANIFESTS = frozenset(
    (
        "package.json",
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "Cargo.toml",
        "pom.xml",
        "build.gradle",
        "CMakeLists.txt",
    )
)
NAMES = ("build", "dist")
# What no person writes: a bundle's map, its short form, the declarations that a compiler derives.
TOOL = re.compile(r"^(Gruntfile|gulpfile|Cakefile|bower)\b|\.(config|conf)\.|^\.")  # instructed by a file that is code
DERIVED = re.compile(r"\.(map|min\.\w+|d\.[cm]?ts|o|a|so|class|jar)$")


def leftovers(paths: Iterable[str]) -> frozenset[str]:
    """Those of a tree's paths that belong to no project."""
    whole = list(paths)
    found = {path for path in whole if ALWAYS.search(path)}
    rest = [path for path in whole if path not in found]
    holders = {"", *(str(PurePosixPath(path).parent) for path in rest if PurePosixPath(path).name in MANIFESTS)} - {"."}
    for holder in holders:
        lead = f"{holder}/" if holder else ""
        places = tuple(f"{lead}{name}/" for name in NAMES)
        outside = [path for path in rest if path.startswith(lead) and not path.startswith(places)]
        for name, place in zip(NAMES, places, strict=True):
            inside = [path for path in rest if path.startswith(place)]
            if inside and _is_output(name, place, inside, outside):
                found.update(inside)
    return frozenset(found)


def _is_output(name: str, folder: str, inside: list[str], outside: list[str]) -> bool:
    """Next to a manifest, `dist` was built, unless nothing else holds code; `build` may hold scripts, so it takes a sign."""
    if f"{folder}__init__.py" in inside:
        return False
    own = {PurePosixPath(path).name.partition(".")[0] for path in outside if _is_code(path)}
    if not own:
        return False
    copies = any(_is_code(path) and PurePosixPath(path).name.partition(".")[0] in own for path in inside)
    return name == "dist" or copies or any(DERIVED.search(path) for path in inside)


def _is_code(path: str) -> bool:
    """Of the project itself: neither a test nor the settings of a tool."""
    place = PurePosixPath(path)
    return (
        place.suffix in CODE and not is_protected(path) and place.name not in MANIFESTS and not TOOL.search(place.name)
    )
