"""Generator `combined-bugs`: several slips in one task, of one file, of neighbouring files, or across the project.

Each of the bugs is one that a test shows by itself, and what they break together is more than any of them alone: otherwise one hides the
others and mending it would be the whole task. The request tells one symptom; the reference mends all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256

from etude.factory.generators.bugs.code import Code
from etude.factory.generators.bugs.concern import Concern
from etude.factory.generators.bugs.injection import build, place_of, with_bugs
from etude.factory.generators.bugs.listing import listed, sources
from etude.factory.generators.bugs.operator import Site
from etude.factory.generators.bugs.trial import Trial
from etude.factory.generators.generator import Bench, Installed
from etude.tasks.task import Task
from etude.tasks.validation.proof import LeftOut
from etude.tasks.validation.workshop import Candidate

NAME = "combined-bugs"
SIZES = (
    2,
    3,
    4,
)  # bugs of a task; five and more are found one after the other, which makes a task long rather than hard
POOL = 400  # sites that are put together, so that listing a large project takes seconds


class CombinedBugs:
    name = NAME
    category = "debugging"
    languages: tuple[str, ...] = ("python", "javascript", "typescript")

    def candidates(self, project: Installed, bench: Bench, seed: int) -> Iterator[Candidate]:
        codes = sources(project.files)
        trial = Trial(project, bench, Concern(project))
        for scope, sites in groups(codes, seed):
            key = sha256(" ".join(site.key for site in sites).encode()).hexdigest()[:10]
            task_id = f"debugging/{project.name}/combined-{scope}/{key}"
            yield Candidate(task_id, partial(build_combined, trial, codes, sites, task_id))


def groups(codes: Mapping[str, Code], seed: int) -> Iterator[tuple[str, tuple[Site, ...]]]:
    """Bugs of different functions: of a file, of a folder, of files anywhere. No bug is used twice."""
    rng = random.Random(f"combined {seed}")
    waiting: dict[tuple[str, str], list[Site]] = {}
    for number, site in enumerate(listed(codes, seed)):
        if number >= POOL:
            break
        scope = rng.choice(("file", "module", "project"))
        holder = {"file": site.path, "module": site.path.rpartition("/")[0], "project": ""}[scope]
        group = waiting.setdefault((scope, holder), [])
        same = [one for one in group if (one.path, one.function) == (site.path, site.function)]
        if same or (scope == "project" and any(one.path == site.path for one in group)):
            continue
        group.append(site)
        if len(group) >= SIZES[len(site.key + holder) % len(SIZES)]:
            yield scope, tuple(waiting.pop((scope, holder)))


async def build_combined(trial: Trial, codes: Mapping[str, Code], sites: Sequence[Site], task_id: str) -> Task:
    """Raises LeftOut, InfraError."""
    alone: list[frozenset[str]] = []
    for site in sites:
        draft = with_bugs(trial, codes, (site,), f"{task_id}-{site.key}", NAME)
        try:
            alone.append(await trial.broken(draft, f"{task_id} {place_of((site,))}"))
        except LeftOut as error:
            raise LeftOut(f"one of its bugs ({site.operator}) is none by itself: {error}") from error
    for number, own in enumerate(alone):
        if own <= frozenset().union(*alone[:number], *alone[number + 1 :]):
            raise LeftOut(f"the others show what {sites[number].operator} breaks: it could stay")
    return await build(trial, codes, sites, task_id, NAME)
