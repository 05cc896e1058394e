"""How a JavaScript project's tests are run: by its own script, over the files that it names, after the build that they need. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from etude.factory.install.rules.node_package import needs, package, scripts, workspaces
from etude.factory.install.rules.node_script import Script, build_of, glob, read
from etude.factory.sources.fetched import Fetched
from etude.tasks.environment.environment import Runner, TestPlan

MOST_FILES = 400
_TEST = re.compile(
    r"(^|/)((tests?|spec|__tests__)/.*\.[cm]?[jt]sx?|[^/]*[._-](test|spec)\.[cm]?[jt]sx?|tests?\.[cm]?[jt]sx?)$"
)
_NO_TESTS = re.compile(
    r"(^|/)(fixtures?|helpers?|support|common|node_modules|browser|benchmarks?|data|cases|mocks?|__mocks__|utils?|snapshots?|__snapshots__)"
    r"(/|\.c?js$)|\.d\.[cm]?ts$"
)
# A file of a folder of tests without one of these tests nothing: data, a generator of fixtures, a benchmark.
_SPEAKS = re.compile(
    r"\b(describe|it|test|tape?|suite|assert\w*|expect|specify|t)\s*[.(`]|node:test|node:assert|['\"]assert['\"]"
)
_IMPORTS = re.compile(r"""(?:from\s*|require\(\s*|import\s*\(?\s*)['"](\.{1,2}/[^'"]+|\.{1,2})['"]""")
_SUFFIXES = (
    "",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".mts",
    ".cts",
    ".tsx",
    ".jsx",
    ".json",
    ".node",
    "/index.js",
    "/index.ts",
    "/index.mjs",
    "/index.cjs",
)
_SCRIPT = re.compile(r"\.[cm]?[jt]sx?$")
BY_NEED: tuple[tuple[str, Runner, tuple[str, ...]], ...] = (
    ("vitest", "vitest", ("npx", "--no-install", "vitest", "run")),
    ("jest", "jest", ("npx", "--no-install", "jest")),
    ("mocha", "mocha", ("npx", "--no-install", "mocha")),
    ("ava", "tap", ("npx", "--no-install", "ava", "--tap")),
    ("tape", "tap", ("npx", "--no-install", "tape")),
    ("qunit", "tap", ("npx", "--no-install", "qunit")),
)


def plan(project: Fetched) -> TestPlan:
    """The runner, the options and the files of the project's own script, after the build that its tests need; without a script that is
    understood, the runner that it depends on."""
    files, wanted = project.texts(), project.wanted
    if wanted.command:
        return TestPlan(wanted.runner or "exit", wanted.command, tuple(tests(files)))  # type: ignore[arg-type]
    found = script(files)
    if found is not None:
        chosen = _named(found.patterns, files) or tests(files)
        runner, argv = found.runner, found.argv
        if found.by_file and any(_is_tape(files[path]) for path in chosen):
            runner, argv = "tap", tuple(word for word in argv if word != "--test")
            chosen = chosen[:1]
    else:
        chosen = tests(files)
        runner, argv = _by_need(files, chosen)
    builds = builds_of(files)
    if builds:
        argv = ("sh", "-c", f'{{ {" && ".join(builds)}; }} >&2 && exec "$@"', "sh", *argv)
    return TestPlan(runner, (*argv, "{files}"), tuple(chosen[:MOST_FILES]))


def tests(files: Mapping[str, str]) -> list[str]:
    named = sorted(path for path in files if _TEST.search(path) and not _NO_TESTS.search(path))
    return ([path for path in named if _SPEAKS.search(files[path])] or named)[:MOST_FILES]


def builds_of(files: Mapping[str, str]) -> tuple[str, ...]:
    """What runs before the tests, where an entry point or an import of a test is only there after it: as their script says, else the build.

    It runs with every run of the tests, never once for all: what is built holds the code that a task takes away."""
    found = script(files)
    own = found.builds if found is not None else ()
    needed = any(_unbuilt(files, folder) for folder in ("", *workspaces(files).values()))
    if not needed and not _imports_unbuilt(files, any_file=bool(own)):
        return ()
    return own or build_of(scripts(package(files)), _of_members(files))


def script(files: Mapping[str, str]) -> Script | None:
    return read(scripts(package(files)), _of_members(files))


def _of_members(files: Mapping[str, str]) -> list[dict[str, str]]:
    return [scripts(package(files, folder)) for folder in workspaces(files).values()]


def _by_need(files: Mapping[str, str], chosen: Sequence[str]) -> tuple[Runner, tuple[str, ...]]:
    depends = needs(package(files))
    for need, runner, argv in BY_NEED:
        if need in depends:
            return runner, argv
    return "node", ("node", "--test")


def _named(patterns: Sequence[str], files: Mapping[str, str]) -> list[str]:
    """The files that a script names: as they are, below a folder, or by a glob."""
    found: dict[str, None] = {}
    for pattern in (one.strip("'\"").removeprefix("./").rstrip("/") for one in patterns):
        if pattern in files:
            found[pattern] = None
            continue
        below = [path for path in files if path.startswith(f"{pattern}/") and _SCRIPT.search(path)]
        shape = glob(pattern) if re.search(r"[*?{]", pattern) else None
        matched = [path for path in files if shape is not None and shape.fullmatch(path)]
        spoken = [path for path in (*below, *matched) if "node_modules/" not in path and not path.endswith(".d.ts")]
        found |= dict.fromkeys(sorted(path for path in spoken if _SPEAKS.search(files[path])))
    return list(found)


def _unbuilt(files: Mapping[str, str], folder: str) -> bool:
    """Whether what the package gives out is not in the tree."""
    document = package(files, folder)
    entries = [*_strings(document.get("exports")), *_strings(document.get("main")), *_strings(document.get("module"))]
    paths = [posixpath.normpath(posixpath.join(folder, one)) for one in entries if "*" not in one]
    code = [path for path in paths if not path.endswith((".json", ".d.ts", ".css"))]
    return bool(code) and not any(f"{path}{suffix}" in files for path in code for suffix in _SUFFIXES)


def _imports_unbuilt(files: Mapping[str, str], *, any_file: bool) -> bool:
    """Whether a test imports a file of a folder that the tree does not have; with `any_file` also one of a folder that it has."""
    folders = {parent.as_posix() for path in files for parent in PurePosixPath(path).parents}
    for path in tests(files):
        for target in _IMPORTS.findall(files[path]):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            known = place in folders or (not any_file and posixpath.dirname(place) in folders)
            if not place.startswith("..") and not known and not _there(place, files):
                return True
    return False


def _there(place: str, files: Mapping[str, str]) -> bool:
    """TypeScript's sources are imported by the names that they will have."""
    stem = re.sub(r"\.([cm]?)jsx?$", r".\1ts", place)
    return any(f"{place}{suffix}" in files for suffix in _SUFFIXES) or stem in files or f"{stem}x" in files


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _strings(one)]


def _is_tape(text: str) -> bool:
    return re.search(r"""['"](tape|tap)['"]""", text) is not None
