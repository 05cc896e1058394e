"""Generator `combined-bugs`: several slips in one task, of one file, of neighbouring files, or across the project.

Each of the bugs is one that a test shows by itself, and what they break together is more than any of them alone: otherwise one hides the
others and mending it would be the whole task. A candidate is a handful of places, of which the first that hold are taken: half of all slips are
shown by no test, and of three at once hardly ever all. The request tells one symptom; the reference mends all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256

from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.bugs.code import Code
from etude.tasks.generate.generators.bugs.concern import Concern
from etude.tasks.generate.generators.bugs.injection import build, place_of, with_bugs
from etude.tasks.generate.generators.bugs.listing import list_sites, outcome_of, sources
from etude.tasks.generate.generators.bugs.operator import Site
from etude.tasks.generate.generators.bugs.trial import BugTrial
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

NAME = "combined-bugs"
SIZES = (
    2,
    3,
    4,
)  # bugs of a task; five and more are found one after the other, which makes a task long rather than hard
SPARE = 3  # places of a candidate for each bug that it is to have
POOL = 1200  # sites that are put together, so that listing a large project takes seconds


class CombinedBugs:
    name = NAME
    category = "debugging"
    languages: tuple[str, ...] = ("python", "javascript", "typescript")

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        codes = sources(project.files)
        trial = BugTrial(project, bench, Concern(project))
        for scope, sites, size in groups(codes, seed):
            key = sha256(" ".join(site.key for site in sites).encode()).hexdigest()[:10]
            task_id = f"debugging/{project.name}/combined-{scope}/{key}"
            yield Candidate(task_id, partial(build_combined, trial, codes, sites, task_id, size))


def groups(codes: Mapping[str, Code], seed: int) -> Iterator[tuple[str, tuple[Site, ...], int]]:
    """Places of different functions, of a file, of a folder, of files anywhere, and how many bugs are wanted. No place is used twice."""
    rng = random.Random(f"combined {seed}")
    waiting: dict[tuple[str, str], list[Site]] = {}
    for number, site in enumerate(list_sites(codes, seed)):
        if number >= POOL:
            break
        scope = rng.choice(("file", "module", "project"))
        holder = {"file": site.path, "module": site.path.rpartition("/")[0], "project": ""}[scope]
        group = waiting.setdefault((scope, holder), [])
        same = [one for one in group if (one.path, one.function) == (site.path, site.function)]
        if same or (scope == "project" and any(one.path == site.path for one in group)):
            continue
        group.append(site)
        size = SIZES[len(holder) % len(SIZES)]
        if len(group) >= SPARE * size:
            yield scope, tuple(waiting.pop((scope, holder))), size
    for (scope, holder), group in waiting.items():  # small projects
        if len(group) >= (size := SIZES[len(holder) % len(SIZES)]):
            yield scope, tuple(group), size


async def build_combined(
    trial: BugTrial, codes: Mapping[str, Code], sites: Sequence[Site], task_id: str, size: int | None = None
) -> Task:
    """`size` of the sites that hold together; None: all of them. Raises CandidateRejected, InfraError."""
    wanted = len(sites) if size is None else size
    chosen: list[Site] = []
    alone: list[frozenset[str]] = []
    why = "its edits do not go together"
    for number, site in enumerate(sites):
        if len(chosen) == wanted or len(chosen) + len(sites) - number < wanted:
            break
        if outcome_of(codes, replace(site, edits=tuple(edit for one in (*chosen, site) for edit in one.edits))) is None:
            continue
        draft = with_bugs(trial, codes, (site,), f"{task_id}-{site.key}", NAME)
        try:
            broken = await trial.broken_tests(draft, f"{task_id} {place_of((site,))}")
        except CandidateRejected as error:
            why = f"{site.operator} is no bug by itself: {error}"
            continue
        if hides(alone, broken):
            why = f"what {site.operator} breaks, others show or would no longer show: one could stay"
            continue
        chosen.append(site)
        alone.append(broken)
    if len(chosen) < wanted:
        raise CandidateRejected(f"{len(chosen)} of its {len(sites)} places hold a bug each, {wanted} are needed: {why}")
    return await build(trial, codes, chosen, task_id, NAME)


def hides(alone: Sequence[frozenset[str]], fresh: frozenset[str]) -> bool:
    """Whether, with the fresh one, any of the bugs breaks nothing that the others together do not."""
    every = [*alone, fresh]
    return any(own <= frozenset().union(*every[:n], *every[n + 1 :]) for n, own in enumerate(every))
