"""Tests to be written: a module's tests are gone, and those that an agent writes must notice what the project's own noticed.

Graded by hidden mutants (`tasks.graders.mutants`): only those that the project's own tests kill are asked about, so that the reference kills
all of them, and a share of `SHARE` passes. A task is about a whole module, or about one function or class of it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from etude.tasks.content import like
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.kinds.defects import Defect, spread_by_function
from etude.tasks.generate.generators.kinds.draft import ProjectTaskDraft, prove_draft_task
from etude.tasks.generate.generators.kinds.modules import Tested
from etude.tasks.generate.generators.kinds.reading import LANGUAGES, language_support
from etude.tasks.generate.generators.kinds.trial import MutantTrial
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.graders.mutants import NAME as GRADER
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

FEWEST, MOST = 4, 10  # mutants of a task
TRIED = 24
SHARE = 0.7
PARTS = 4  # tasks about a part of a module, at most
FEWEST_SITES = 8  # of a part, so that it is worth tests of its own


class TestWriting:
    """One task a module, and one for each of its larger parts."""

    name = "test_writing"
    category = "tests"
    languages: tuple[str, ...] = LANGUAGES
    __test__ = False  # not a test class, whatever a collector thinks of its name

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        read = language_support(project)
        for place in read.tested(project):
            found = read.defects(place.path, project.files[place.path])
            for part in ("", *parts(found)) if len(found) >= FEWEST else ():
                task_id = f"{project.name}/tests/{place.name}{'.' if part else ''}{part}"
                candidate = _TestWritingCandidate(task_id, place, part, seed)
                yield Candidate(task_id, lambda candidate=candidate: build(candidate, project, bench))


@dataclass(frozen=True)
class _TestWritingCandidate:
    id: str
    place: Tested
    part: str
    seed: int


def parts(found: list[Defect]) -> list[str]:
    """The functions and classes with the most to test."""
    counts: dict[str, int] = {}
    for one in found:
        name = one.function.partition(".")[0]
        counts[name] = counts.get(name, 0) + 1
    worth = [
        name
        for name, sites in counts.items()
        if sites >= FEWEST_SITES and name[:1] not in ("_", "") and name != "exports"
    ]
    return sorted(worth, key=lambda name: (-counts[name], name))[:PARTS]


async def build(candidate: _TestWritingCandidate, project: InstalledProject, bench: ProofContext) -> Task:
    place = candidate.place
    read = language_support(project)
    text = project.files[place.path]
    test = place.tests[0]
    trial = MutantTrial(project, (test,), bench)
    right = await trial.right_outcome()
    reference = read.passing(project.files[test], right)
    found = read.defects(place.path, text)
    sites = [one for one in found if not candidate.part or one.function.partition(".")[0] == candidate.part]
    random.Random(f"{candidate.id} {candidate.seed}").shuffle(sites)
    killed = await trial.noticed_defects(spread_by_function(sites), right, MOST, TRIED)
    if len(killed) < FEWEST:
        raise CandidateRejected(
            f"the project's own tests notice {len(killed)} of {min(len(sites), TRIED)} mutants, {FEWEST} are needed"
        )
    files = {path: kept for path, kept in project.files.items() if path not in {*place.tests, *place.others}}
    draft = ProjectTaskDraft(
        id=candidate.id,
        category=TestWriting.category,
        level="part-tests" if candidate.part else "module-tests",
        generator=TestWriting.name,
        grader=GRADER,
        facts=_facts(place, candidate.part),
        demand=f"Put tests of {_what(place, candidate.part)} into `{test}`, and change no other file.",
        files=files,
        solution={test: like(project.files[test], reference)},
        hidden={
            "path": test,
            "module": place.path,
            "import": read.imported(place, test),
            "broken": [[one.edit()] for one in killed],
            "same": read.same(place.path, text),
            "kill": math.ceil(SHARE * len(killed)),
            "seconds": right.seconds,
        },
        editable=(test,),
        operators=tuple(sorted({one.operator for one in killed})),
    )
    return await prove_draft_task(draft, project, bench)


def _facts(place: Tested, part: str) -> Facts:
    headline = f"write tests for {_what(place, part)}, which has none any more"
    return Facts(
        headline=headline,
        place=f"`{place.path}`",
        notes=(
            "They must pass on the code as it is, every time they are run",
            "They are judged by what they notice: small mistakes are put into the code, and most of them have to make a test fail",
            "They must test what the code does, not how it is written: a rewrite that behaves the same has to pass",
        ),
    )


def _what(place: Tested, part: str) -> str:
    return f"`{part}` of `{place.path}`" if part else f"`{place.path}`"
