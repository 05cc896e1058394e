"""A Python project's modules, and which of its test files are about which."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from etude.tasks.generate.generator import InstalledProject
from etude.tasks.protected import is_protected, is_test
from etude.tasks.validation.change import PYTEST_FILE

_DEFINED = re.compile(r"(?m)^(?:def|class|async def)\s+(\w+)")
NOT_CODE = frozenset(("docs", "doc", "examples", "example", "benchmarks", "scripts", "tools", "bin"))


@dataclass(frozen=True)
class Tested:
    """A module, by path and dotted name, and the test files about it, the nearest first. `others`: test files that may speak of it too."""

    path: str
    name: str
    tests: tuple[str, ...]
    others: tuple[str, ...] = ()


def modules(project: InstalledProject) -> dict[str, str]:
    """Dotted names of the modules by path, in the order of their paths."""
    found: dict[str, str] = {}
    for path in sorted(project.texts):
        place = PurePosixPath(path)
        parts = place.parts[1:] if place.parts[0] in ("src", "lib") else place.parts
        if place.suffix != ".py" or is_protected(path) or not parts or parts[0] in NOT_CODE or place.name == "setup.py":
            continue
        if all(part.isidentifier() for part in (*parts[:-1], place.stem)):
            found[path] = ".".join([*parts[:-1], *(() if place.stem == "__init__" else (place.stem,))])
    return {path: name for path, name in found.items() if name}


def test_files(project: InstalledProject) -> list[str]:
    """The Python test files that run here, whatever they are called; if they were not run, those that pytest would collect."""
    known = project.baseline.by_file or project.environment.tests.files
    found = known or [path for path in project.texts if PYTEST_FILE.search(path)]
    return sorted(path for path in found if path in project.texts and path.endswith(".py") and is_test(path))


def tested_modules(project: InstalledProject) -> Iterator[Tested]:
    """Modules with the test files about them: by name (`test_x.py` is about `x.py`), else by what a test file speaks of most: what a module
    defines, and the module itself. A package that defines nothing represents no module: it passes on what others define."""
    names = modules(project)
    defined = {path: frozenset(_DEFINED.findall(project.files[path])) for path in names}
    about: dict[str, list[str]] = {}
    for test in test_files(project):
        module = _by_name(test, names, defined) or _by_words(project.files[test], names, defined)
        if module:
            about.setdefault(module, []).append(test)
    for path, name in names.items():
        if path in about:
            yield Tested(path, name, nearest(path, about[path], project.files))


def nearest(path: str, tests: Iterable[str], files: Mapping[str, str]) -> tuple[str, ...]:
    """The test file that is named after the module comes first, then the longest: a short one may look at signatures alone."""
    return tuple(sorted(tests, key=lambda test: (_subject(test) != _stem(path), -len(files[test]), test)))


def _subject(test: str) -> str:
    return re.sub(r"^tests?[_-]|[_.-](tests?|spec)$", "", PurePosixPath(test).stem)


def _stem(path: str) -> str:
    place = PurePosixPath(path)
    return place.parent.name if place.stem in ("__init__", "index") else place.stem.strip("_")


def _by_name(test: str, names: dict[str, str], defined: Mapping[str, frozenset[str]]) -> str:
    hits = [path for path in names if _stem(path) == _subject(test) and defined[path]]
    return min(hits, key=lambda path: (len(PurePosixPath(path).parts), path)) if hits else ""


def _by_words(text: str, names: dict[str, str], defined: Mapping[str, frozenset[str]]) -> str:
    mentions = Counter(re.findall(r"\w+", text))
    counts = {
        path: sum(mentions[word] for word in defined[path]) + len(re.findall(rf"\b{re.escape(name)}\b", text))
        for path, name in names.items()
        if defined[path]
    }
    best = max(counts, key=lambda path: (counts[path], len(names[path])), default="")
    return best if best and counts[best] else ""
