"""Whether the tests of a JavaScript project need its build: what they import, directly or through other files, that the tree lacks. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

from etude.tasks.generate.install.rules.node_package import package, workspaces

MOST_REACHED = 600  # files that are followed from the tests; a larger project is judged by these
_IMPORTS = re.compile(
    r"""(?:\bfrom\s*|\brequire(?:\.resolve)?\(\s*|\bimport\s*(?:\(\s*)?|\bmock\(\s*)['"]([^'"\s]+)['"]"""
)
_SUFFIXES = (
    "",
    *(".js", ".mjs", ".cjs", ".ts", ".mts", ".cts", ".tsx", ".jsx", ".json", ".node", ".d.ts", ".vue", ".svelte"),
    *("/index.js", "/index.ts", "/index.mjs", "/index.cjs", "/index.tsx", "/index.jsx"),
)
_CODE = re.compile(r"\.[cm]?[jt]sx?$")
_SOURCES = ("src", "source", "sources")
_TOOLS = r"eslint|prettier|stylelint|commitlint|release|lint-?staged|playwright|cypress|karma|typedoc|docusaurus|knip"
_BUILDERS = r"tsdown|tsup|build|unbuild|rollup|rolldown|webpack|esbuild|gulpfile|Gruntfile"
_IDLE = r"(^|/)(node_modules|docs?|site|website|examples?|demo|e2e)/"
_SETTINGS_OF_TOOLS = re.compile(rf"{_IDLE}|(^|/)\.?({_TOOLS})[\w.-]*\.[cm]?[jt]s$")
_SETTINGS = re.compile(rf"{_IDLE}|(^|/)\.?({_TOOLS}|{_BUILDERS})[\w.-]*\.[cm]?[jt]s$")
_PACKAGE = re.compile(r"(?:@[\w.-]+/)?[\w.-]+")


def imports(text: str) -> list[str]:
    """What a file imports, as it is written."""
    return _IMPORTS.findall(text)


def imported_packages(files: Mapping[str, str], build: bool) -> frozenset[str]:
    """The packages that scripts of the tree import by name, but for settings of linters and sites, and without `build` of builders."""
    idle = _SETTINGS_OF_TOOLS if build else _SETTINGS
    code = [path for path in files if _CODE.search(path) and not idle.search(path)]
    targets = [target for path in code for target in imports(files[path]) if not target.startswith(".")]
    names = [_PACKAGE.match(target) for target in targets]
    return frozenset(name[0] for name in names if name)


def main_file(files: Mapping[str, str]) -> str | None:
    """What `require` of the folder loads, where the tree has it."""
    main = package(files).get("main")
    return _found(posixpath.normpath(main) if isinstance(main, str) and main else "index", files)


def needs_build(files: Mapping[str, str], chosen: Sequence[str], *, in_script: bool) -> bool:
    """Whether a file that the tests reach imports a file, or the package itself, that only a build makes, or names the folder of a build.
    `in_script`: their own script builds, so that a missing file of a folder that is there counts too."""
    tree = _Tree(files)
    reached = tree.reachable_files(chosen)
    if any(tree.lacks(path, in_script) for path in reached):
        return True
    unbuilt = [name for name, folder in tree.packages().items() if _unbuilt(files, folder)]
    named = [target for path in reached for target in imports(files[path])]
    if any(target == name or target.startswith(f"{name}/") for target in named for name in unbuilt):
        return True
    outputs = tree.outputs()
    shape = re.compile(rf"""['"`/.]({"|".join(map(re.escape, outputs))})(/|['"`])""")
    return bool(outputs) and any(shape.search(files[path]) for path in chosen if path in files)


def reached_files(files: Mapping[str, str], chosen: Sequence[str]) -> list[str]:
    """The chosen files, and those of the tree that they import, directly or through others."""
    return _Tree(files).reachable_files(chosen)


def missing_sources(files: Mapping[str, str], chosen: Sequence[str]) -> list[str]:
    """What tests import from a folder of sources that the tree does not have: no build makes it."""
    tree = _Tree(files)
    places = [place for path in chosen if path in files for place in tree.places(path)]
    lacking = [place for place in places if place.split("/")[0] in _SOURCES and _found(place, files) is None]
    return [place for place in lacking if place.split("/")[0] not in tree.folders]


@dataclass(frozen=True)
class _Tree:
    files: Mapping[str, str]

    @cached_property
    def folders(self) -> frozenset[str]:
        return frozenset(parent.as_posix() for path in self.files for parent in PurePosixPath(path).parents)

    def packages(self) -> dict[str, str]:
        """The folders of the packages of the tree by their names."""
        own = str(package(self.files).get("name") or "")
        return {**({own: ""} if own else {}), **workspaces(self.files)}

    def reachable_files(self, chosen: Sequence[str]) -> list[str]:
        found = dict.fromkeys(path for path in chosen if path in self.files)
        waiting = list(found)
        while waiting and len(found) < MOST_REACHED:
            for place in self.places(waiting.pop()):
                path = _found(place, self.files)
                if path is not None and path not in found and _CODE.search(path):
                    found[path] = None
                    waiting.append(path)
        return list(found)

    def places(self, path: str) -> list[str]:
        """What a file imports by a relative path, from the root of the tree."""
        targets = [one.split("?")[0] for one in imports(self.files[path]) if re.match(r"\.{1,2}(/|$)", one)]
        found = [posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) for target in targets]
        return [place for place in found if not place.startswith("..")]

    def lacks(self, path: str, in_script: bool) -> bool:
        for place in self.places(path):
            if place in self.folders:
                folder = "" if place == "." else place
                described = f"{folder}/package.json".lstrip("/") in self.files
                if _found(place, self.files) is None and (not described or _unbuilt(self.files, folder)):
                    return True
            elif in_script or posixpath.dirname(place) not in self.folders:
                if _found(place, self.files) is None:
                    return True
        return False

    def outputs(self) -> list[str]:
        """Folders that package.json names and the tree does not have."""
        document = package(self.files)
        named = [one for key in ("exports", "main", "module", "bin") for one in _strings(document.get(key))]
        tops = [posixpath.normpath(one).split("/")[0] for one in named if "/" in posixpath.normpath(one)]
        return [top for top in dict.fromkeys(tops) if top not in self.folders and re.fullmatch(r"[\w-]+", top)]


def _found(place: str, files: Mapping[str, str]) -> str | None:
    """TypeScript's sources are imported by the names that they will have."""
    inside = "" if place == "." else place
    for suffix in _SUFFIXES:
        if (path := f"{inside}{suffix}".lstrip("/")) in files:
            return path
    stem = re.sub(r"\.([cm]?)jsx?$", r".\1ts", place)
    return next((path for path in (stem, f"{stem}x") if path in files), None)


def _unbuilt(files: Mapping[str, str], folder: str) -> bool:
    """Whether what the package gives out is not in the tree."""
    document = package(files, folder)
    entries = [*_strings(document.get("exports")), *_strings(document.get("main")), *_strings(document.get("module"))]
    paths = [posixpath.normpath(posixpath.join(folder, one)) for one in entries if "*" not in one]
    code = [path for path in paths if not path.endswith((".json", ".d.ts", ".css"))]
    return bool(code) and not any(f"{path}{suffix}" in files for path in code for suffix in _SUFFIXES)


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _strings(one)]
