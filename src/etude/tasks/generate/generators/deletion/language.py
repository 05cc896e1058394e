"""What a deletion needs of a language: which files are its modules and tests, who uses what, and how both are cut."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from etude.core.bounded_python import parse_python
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.generators.bugs.listing import sources
from etude.tasks.generate.generators.deletion.cutting import tests_without, without
from etude.tasks.generate.generators.deletion.index import DefinitionIndex, index
from etude.tasks.generate.generators.deletion.script_cutting import script_tests_without, script_without
from etude.tasks.generate.generators.deletion.script_index import script_index
from etude.tasks.generate.generators.kinds.modules import modules, test_files

LANGUAGES = ("python", "javascript", "typescript")


@dataclass(frozen=True)
class Language:
    """`modules`: names by path, in the order of the paths; `indexed`: of those texts by path; `without`, `tests_without`: of (path, text,
    names), None where the file goes whole; they raise SyntaxError."""

    code: re.Pattern[str]
    modules: Callable[[InstalledProject], Mapping[str, str]]
    tests: Callable[[InstalledProject], list[str]]
    parses: Callable[[str], bool]
    indexed: Callable[[Mapping[str, str]], DefinitionIndex]
    without: Callable[[str, str, Collection[str]], str | None]
    tests_without: Callable[[str, str, Collection[str]], str | None]

    def index(self, project: InstalledProject) -> DefinitionIndex:
        """Of the modules that can be read; a project may carry some of another version of its language."""
        return self.indexed({p: project.files[p] for p in self.modules(project) if self.parses(project.files[p])})


def language(project: InstalledProject) -> Language:
    return PYTHON if project.environment.language == "python" else SCRIPT


def script_tests(project: InstalledProject) -> list[str]:
    """The test files that run here."""
    return sorted(p for p in project.baseline.by_file or project.environment.tests.files if p in project.texts)


def runnable_settings(path: str, text: str) -> str:
    """What of a file of settings may name a part of the code: of `package.json` only what is run or exported."""
    if not path.endswith("package.json"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    aside = (
        "keywords",
        "description",
        "dependencies",
        "devDependencies",
        "author",
        "contributors",
        "name",
        "repository",
    )
    return (
        json.dumps({key: value for key, value in found.items() if key not in aside})
        if isinstance(found, dict)
        else text
    )


def _parses(text: str) -> bool:
    try:
        parse_python(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _script_modules(project: InstalledProject) -> dict[str, str]:
    codes = sources(project.files)
    return {path: path for path, code in codes.items() if code.language == "javascript" and not code.root.has_error}


def _pure(cut: Callable[[str, Collection[str]], str | None]) -> Callable[[str, str, Collection[str]], str | None]:
    return lambda _, text, names: cut(text, names)


PYTHON = Language(re.compile(r"\.pyi?$"), modules, test_files, _parses, index, _pure(without), _pure(tests_without))
SCRIPT = Language(
    re.compile(r"\.[cm]?[jt]sx?$"),
    _script_modules,
    script_tests,
    lambda _: True,
    script_index,
    script_without,
    script_tests_without,
)
