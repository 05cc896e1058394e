"""How generators of tests and reviews read a language: modules with their tests, parts, defects, and variants that behave the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from etude.core.bounded_python import parse_python
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject
from etude.tasks.generate.generators.kinds.defects import Defect, defects
from etude.tasks.generate.generators.kinds.modules import Tested, tested_modules
from etude.tasks.generate.generators.kinds.same import same, script_same
from etude.tasks.generate.generators.kinds.script import (
    script_defects,
    script_imported,
    script_slices,
    script_tested,
)
from etude.tasks.generate.generators.kinds.slices import CodeSlice, slices
from etude.tasks.generate.generators.kinds.trial import Right
from etude.tasks.real.hiding import without

# A project's test file as a reference: without the tests that do not pass here.


def passing_file(text: str, right: Right) -> str:
    """The file without those that fail or are skipped: a reference must pass whole. Raises CandidateRejected."""
    fails = {name.partition("::")[2].partition("[")[0] for name in right.failed}
    holders = {name.partition("::")[0].rpartition(".")[2] for name in right.failed}
    try:
        kept = without(text, {*fails, *(f"{holder}.{name}" for holder in holders for name in fails)}) if fails else text
        parse_python(kept)
    except (SyntaxError, ValueError) as error:
        raise CandidateRejected(f"its tests can't be taken apart: {error}") from error
    return kept


def script_passing(text: str, right: Right) -> str:
    """JavaScript's tests are calls in one another, by names that are made as they run: a file with one that fails is left out."""
    if right.failed:
        raise CandidateRejected(f"{len(right.failed)} of its tests fail here, {min(right.failed)!r} first")
    return text


LANGUAGES = ("python", "javascript", "typescript")


@dataclass(frozen=True)
class LanguageSupport:
    """`passing`: a test file without what does not pass on the right code; raises CandidateRejected. `same`: lists of edits. `imported`: how a test
    file names the module."""

    tested: Callable[[InstalledProject], Iterator[Tested]]
    slices: Callable[[str, str, int, int], list[CodeSlice]]
    defects: Callable[[str, str], list[Defect]]
    same: Callable[[str, str], list[list[dict[str, Any]]]]
    passing: Callable[[str, Right], str]
    imported: Callable[[Tested, str], str]


PYTHON = LanguageSupport(tested_modules, slices, defects, same, passing_file, lambda place, _: place.name)
SCRIPT = LanguageSupport(script_tested, script_slices, script_defects, script_same, script_passing, script_imported)


def language_support(project: InstalledProject) -> LanguageSupport:
    """Of the project's language, one of LANGUAGES."""
    return PYTHON if project.environment.language == "python" else SCRIPT
