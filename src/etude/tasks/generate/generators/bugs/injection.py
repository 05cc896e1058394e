"""Generator `bug-injection`: one plausible slip in a real project, found again by the project's own tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from etude.tasks.content import like
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.bugs.code import Code
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.listing import list_sites, outcome_of, sources
from etude.tasks.generate.generators.bugs.operator import Site
from etude.tasks.generate.generators.bugs.symptom import facts
from etude.tasks.generate.generators.bugs.trial import BugTrial, draft_of
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.prompts.interface import with_interface
from etude.tasks.generate.prompts.writing import template_prompts
from etude.tasks.task import Task
from etude.tasks.validation.project import TaskDraft, task_of
from etude.tasks.validation.suite_build import Candidate

NAME = "bug-injection"


class BugInjection:
    """`only`: operators to draw from; empty: all."""

    name = NAME
    category = "debugging"
    languages: tuple[str, ...] = ("python", "javascript", "typescript")

    def __init__(self, only: frozenset[str] = frozenset()) -> None:
        self.only = only

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        codes = sources(project.files)
        trial = BugTrial(project, bench, Concern(project))
        for site in list_sites(codes, seed, self.only):
            task_id = f"debugging/{project.name}/{site.operator}/{site.key}"
            yield Candidate(task_id, partial(build, trial, codes, (site,), task_id, self.name))


async def build(
    trial: BugTrial, codes: Mapping[str, Code], sites: Sequence[Site], task_id: str, generator: str
) -> Task:
    """One task of these sites. Raises CandidateRejected, InfraError."""
    draft = with_bugs(trial, codes, sites, task_id, generator)
    broken = await trial.broken_tests(draft, place_of(sites))
    output = await trial.output(draft)
    draft = trial.without_tests(draft, broken)
    failures = trial.failures(output, broken)
    found = facts(failures, _tests(trial, draft), public_names(codes), place_in_words(sites), len(broken))
    draft = with_prompts(draft, found)
    return await trial.prove_task(draft, {"facts": found.to_record(), "failing": len(broken)})


def with_bugs(
    trial: BugTrial, codes: Mapping[str, Code], sites: Sequence[Site], task_id: str, generator: str
) -> TaskDraft:
    """The draft with these bugs in it. Raises CandidateRejected where no test is concerned."""
    project = trial.project
    whole = replace(sites[0], edits=tuple(edit for site in sites for edit in site.edits))
    outcome = outcome_of(codes, whole)
    if outcome is None:
        raise CandidateRejected("its edits do not go together")
    names: dict[str, list[str]] = {path: [] for path, _ in outcome}
    for site in sites:
        names[site.path].append(site.function)
    tests = trial.concern.files(names)
    facts: dict[str, Any] = {
        "generator": generator,
        "operators": [site.operator for site in sites],
        "families": sorted({site.family for site in sites}),
        "places": [f"{site.path}:{site.function}" for site in sites],
        "origin": project.origin,
        "licence": project.licence,
    }
    changed = {path: like(project.files[path], text.decode()) for path, text in outcome}
    return draft_of(project, task_id, changed, tests, facts)


def with_prompts(draft: TaskDraft, found: Facts) -> TaskDraft:
    facts_of_task = with_interface(task_of(draft), found)
    texts = template_prompts(draft.category, facts_of_task, draft.id)
    return replace(draft, prompts={str(style): text for style, text in texts.items()})


def place_of(sites: Sequence[Site]) -> str:
    return " ".join(sorted({f"{site.path}:{site.function}" for site in sites}))


def place_in_words(sites: Sequence[Site]) -> str:
    """The folder or module, as a person would call it who has not looked into the code."""
    modules = sorted({site.path.rpartition("/")[2].rpartition(".")[0] for site in sites})
    holders = [site.path.split("/")[-2] for site in sites if "/" in site.path]
    named = [
        holder if module in ("__init__", "index") and holder else module
        for module, holder in zip(modules, holders or modules, strict=False)
    ]
    return f"`{named[0]}`" if len(named) == 1 else f"{', '.join(f'`{one}`' for one in named[:-1])} and `{named[-1]}`"


def public_names(codes: Mapping[str, Code]) -> Collection[str]:
    """Functions and classes that people may name."""
    found: set[str] = set()
    for code in codes.values():
        for function in code.functions:
            found |= {part for part in function.name.split(".") if not part.startswith("_")}
    return found


def _tests(trial: BugTrial, draft: TaskDraft) -> dict[str, str]:
    return {path: trial.project.files[path] for path in draft.tests if path.endswith(".py")}
