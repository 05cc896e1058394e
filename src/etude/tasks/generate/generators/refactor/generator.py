"""Generator `refactor`: rename of a public function or class across a project, and moving one to another module.

The tests, adapted to the new name or place, show that it was done and that all still works; structure shows that it was done wholly and
nothing else with it (`tasks/graders/refactor.py`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from etude.tasks.audit import check
from etude.tasks.cheats.refactored import REFACTORED
from etude.tasks.content import like
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.refactor.move import move_symbol, target_module, targets
from etude.tasks.generate.generators.refactor.rename import new_name, rename_symbol
from etude.tasks.generate.generators.refactor.sources import RefactorSymbol, Sources
from etude.tasks.generate.prompts.checks import words
from etude.tasks.generate.prompts.facts import KEY, Facts
from etude.tasks.generate.prompts.writing import template_prompts
from etude.tasks.graders.refactor import NAME as GRADER
from etude.tasks.graders.refactor import RefactorGrader
from etude.tasks.protected import is_protected
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, prove_draft, task_of
from etude.tasks.validation.suite_build import Candidate

NAME = "refactor"


class Refactor:
    name = NAME
    category = "refactors"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        sources = Sources(project)
        subjects = sources.subjects()
        random.Random(f"refactor {project.name} {seed}").shuffle(subjects)
        for subject in subjects:
            for operation in ("rename", "move"):
                task_id = f"refactors/{project.name}/{NAME}/{operation}-{subject.module}.{subject.name}"
                yield Candidate(task_id, partial(build, sources, bench, subject, operation, task_id, seed))


async def build(
    sources: Sources, bench: ProofContext, subject: RefactorSymbol, operation: str, task_id: str, seed: int
) -> Task:
    """Raises CandidateRejected, InfraError."""
    project = sources.project
    draft, hidden = draft_refactoring(sources, subject, operation, task_id, seed)
    task = await prove_draft(draft, bench.pool, bench.timeout_s, flaky=project.baseline.flaky)
    task = replace(task, grader=GRADER, hidden={**task.hidden, **hidden})
    found = await check(task, bench.pool, grade=RefactorGrader().grade, cheats=REFACTORED)
    if not found.sound:
        raise CandidateRejected(f"not sound: {found.complaint()}")
    return task


def draft_refactoring(
    sources: Sources, subject: RefactorSymbol, operation: str, task_id: str, seed: int
) -> tuple[TaskDraft, dict[str, object]]:
    """The task before anything was run, and what its grader needs in addition. Raises CandidateRejected."""
    project = sources.project
    if operation == "rename":
        new = new_name(subject, frozenset[str]().union(*sources.words.values()))
        changed, target, target_path = rename_symbol(sources, subject, new), subject.module, subject.path
    else:
        new = subject.name
        changed, target_path = _placed(sources, subject, task_id, seed)
        target = target_module(subject.module, target_path)
    changed = {path: like(project.files.get(path), text) for path, text in changed.items()}
    changed = {path: text for path, text in changed.items() if text != project.files.get(path)}
    tests = sources.concerned_tests(set(changed))
    facts = _facts(subject, operation, new, target, target_path, target_path in project.files)
    request = {"operation": operation, "module": subject.module, "old": subject.name, "new": new, "target": target}
    draft = TaskDraft(
        id=task_id,
        category="refactors",
        level=f"{operation}-{subject.kind}",
        prompts={str(style): text for style, text in template_prompts("refactors", facts, task_id).items()},
        environment=project.environment,
        base=project.files,
        solution={path: text for path, text in changed.items() if not is_protected(path)},
        hidden={path: text for path, text in changed.items() if is_protected(path)},
        tests=tests,
        metadata={
            "generator": NAME,
            "operators": [f"{operation}-{subject.kind}"],
            "origin": project.origin,
            "licence": project.licence,
            "must_say": sorted(words(f"{subject.name} {target}.{new}")),  # else the request would be ambiguous
            KEY: facts.to_record(),
        },
    )
    task_of(draft)
    return draft, {"refactor": request, "modules": {**sources.modules, target_path: target}}


def _placed(sources: Sources, subject: RefactorSymbol, task_id: str, seed: int) -> tuple[dict[str, str], str]:
    """The first place that it can go to. Raises CandidateRejected with what speaks against the last."""
    siblings, new = targets(sources, subject)[:-1], targets(sources, subject)[-1:]
    random.Random(f"{task_id} {seed}").shuffle(siblings)
    why = CandidateRejected("there is no module it could go to")
    for path in [*siblings, *new]:
        try:
            return move_symbol(sources, subject, path), path
        except CandidateRejected as error:
            why = error
    raise why


def _facts(subject: RefactorSymbol, operation: str, new: str, target: str, target_path: str, there: bool) -> Facts:
    if operation == "rename":
        return Facts(
            headline=f"rename the {subject.kind} `{subject.name}` of `{subject.module}` to `{new}`",
            place=f"`{subject.path}` and all who use it",
            interface=(f"{target}.{new}",),
            notes=(
                f"`{subject.name}` is to be gone everywhere: no alias, no wrapper, nothing else changes",
                "Tests are adapted by us",
            ),
        )
    return Facts(
        headline=f"move the {subject.kind} `{subject.name}` from `{subject.module}` to `{target}`",
        place=f"`{subject.path}`, `{target_path}`{'' if there else ', which is new,'} and all who import it",
        interface=(f"{target}.{new}",),
        notes=(
            f"`{subject.module}` is not to re-export it; all imports name the new place, and nothing else changes",
            "What the package exports stays exported; tests are adapted by us",
        ),
    )
