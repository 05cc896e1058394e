"""A project's Python as a refactoring sees it: modules and test files by dotted name, and what of them may be chosen."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cached_property

from etude.core.bounded_python import parse_python
from etude.tasks.content import LINK, mode_of
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.generators.kinds.modules import modules, test_files
from etude.tasks.graders.canonical import DEFINITION, Program, UnparsableModule, program
from etude.tasks.graders.refactor import PROSE
from etude.tasks.protected import SETTINGS, is_protected

TEST_FILES = 8  # the project rests on a thing that more of them use
NEWS = re.compile(
    r"(^|/)(change|history|news|release|authors|licen|PKG-INFO)[^/]*$|\.egg-info/|(^|/)(changelog|releases)/",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class RefactorSymbol:
    """A public top-level function or class. `module` is dotted."""

    path: str
    module: str
    name: str
    kind: str  # function, class


@dataclass(frozen=True)
class Sources:
    project: InstalledProject

    @cached_property
    def modules(self) -> dict[str, str]:
        return modules(self.project)

    @cached_property
    def python(self) -> dict[str, str]:
        """Dotted names of all Python files by path; a test's is made of its path, that its imports can be resolved."""
        tests = {
            path: path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
            for path in self.project.texts
            if path.endswith(".py") and path not in self.modules
        }
        return {**tests, **self.modules}

    @cached_property
    def program(self) -> Program:
        """Raises CandidateRejected where a file is no Python of this version."""
        try:
            return program(self.project.files, self.python)
        except UnparsableModule as error:
            raise CandidateRejected(str(error)) from error

    @cached_property
    def words(self) -> dict[str, frozenset[str]]:
        """Of every file that people read, in whatever encoding."""
        read = {path: text for path, text in self.project.files.items() if mode_of(text) != LINK and "\0" not in text}
        return {path: frozenset(re.findall(r"[A-Za-z_]\w*", text)) for path, text in read.items()}

    def subjects(self) -> list[RefactorSymbol]:
        """Those that a test file speaks of, in the order of their paths."""
        tests = test_files(self.project)
        spoken = frozenset[str]().union(*(self.words[path] for path in tests))
        found: list[RefactorSymbol] = []
        for path, module in self.modules.items():
            for node in _definitions(self.project.files[path]):
                if node.name in spoken and not node.name.startswith("_") and not node.name.startswith("test"):
                    kind = "class" if isinstance(node, ast.ClassDef) else "function"
                    found.append(RefactorSymbol(path, module, node.name, kind))
        return found

    def concerned_tests(self, changed: set[str]) -> list[str]:
        """The test files that a reference changes. Raises CandidateRejected for none and for too many."""
        tests = [path for path in test_files(self.project) if path in changed]
        if not tests:
            raise CandidateRejected("no test file would notice: none names it by the place that changes")
        if len(tests) > TEST_FILES:
            raise CandidateRejected(
                f"{len(tests)} test files use it, more than {TEST_FILES}: the whole project depends on it"
            )
        return tests

    def files_with_word(self, name: str) -> list[str]:
        """Files with this word, but for news, which tell of the past; of neither Python nor prose those where it
        is code. Raises CandidateRejected for settings, which no agent may change."""
        mention = re.compile(
            rf"\b{re.escape(name)}\b" if "_" in name else rf"(?<=[.:]){re.escape(name)}\b|\b{re.escape(name)}\("
        )
        found = [path for path in self.words if name in self.words[path] and not NEWS.search(path)]
        found = [
            p for p in found if p.endswith((".py", ".pyi")) or PROSE.search(p) or mention.search(self.project.files[p])
        ]
        for path in found:
            if path.endswith((".py", ".pyi")) and path not in self.project.texts:
                raise CandidateRejected(f"{path} names it, and is no UTF-8 text")
            if path.rpartition("/")[2] in SETTINGS and not path.endswith(".py") and is_protected(path):
                raise CandidateRejected(f"{path} names it, and decides how tests run")
            if not path.endswith(".py") and not PROSE.search(path) and not is_protected(path):
                raise CandidateRejected(f"{path} names it, and is neither Python nor prose")
        return found


def _definitions(text: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    try:
        return [node for node in parse_python(text).body if isinstance(node, DEFINITION)]
    except (SyntaxError, ValueError):
        return []  # of another Python: nothing is chosen from it
