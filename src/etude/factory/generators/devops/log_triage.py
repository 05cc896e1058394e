"""Log triage: a day's log of a service made of the project's modules, a planted cause, one question with one answer."""

from __future__ import annotations

import random
from collections.abc import Iterator

from etude.factory.generators.devops.logs import DIMENSIONS, Dimension, day
from etude.factory.generators.generator import Bench, Installed
from etude.factory.generators.kinds.draft import Draft, proved
from etude.factory.generators.kinds.modules import modules
from etude.factory.prompts.facts import Facts
from etude.tasks.graders.answer import NAME as GRADER
from etude.tasks.task import Task
from etude.tasks.validation.proof import LeftOut
from etude.tasks.validation.workshop import Candidate

LOG, ANSWER = "logs/2024-03-05.log", "answer.txt"
FEWEST_MODULES, MOST_MODULES = 4, 10


class LogTriage:
    """One task for each dimension that the cause can lie in."""

    name = "log_triage"
    category = "devops"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: Installed, bench: Bench, seed: int) -> Iterator[Candidate]:
        for dimension in DIMENSIONS:
            task_id = f"{project.name}/log-triage/{dimension}"
            yield Candidate(
                task_id, lambda task_id=task_id, dimension=dimension: build(task_id, dimension, seed, project, bench)
            )


async def build(task_id: str, dimension: Dimension, seed: int, project: Installed, bench: Bench) -> Task:
    rng = random.Random(f"{task_id} {seed}")
    named = [name for name in modules(project).values() if "." in name]
    if len(named) < FEWEST_MODULES:
        raise LeftOut(
            f"it has {len(named)} modules in packages, {FEWEST_MODULES} are needed: the answer could be guessed"
        )
    if taken := sorted({LOG, ANSWER} & project.files.keys()):
        raise LeftOut(f"the project has {taken[0]} of its own")
    found = day(dimension, rng.sample(named, min(MOST_MODULES, len(named))), rng)
    if not found.clear:
        raise LeftOut(f"the log does not single out one {dimension}")
    facts = Facts(
        headline=f"requests in `{LOG}` miss their deadline much more often with one {dimension} than with all others, find out which",
        place=f"`{LOG}`",
        expected=f"the name of the {dimension} alone, as the log spells it",
        notes=(
            "Deadlines are missed now and then everywhere; what counts is the share",
            *(("Which build a host runs is told when it starts",) if dimension == "build" else ()),
        ),
    )
    draft = Draft(
        id=task_id,
        category=LogTriage.category,
        level="log-triage",
        generator=LogTriage.name,
        grader=GRADER,
        facts=facts,
        demand=f"Find it in `{LOG}` and write the {dimension} into `{ANSWER}`, one line, nothing else.",
        files=dict(project.files) | {LOG: found.text},
        solution={ANSWER: f"{found.culprit}\n"},
        hidden={"path": ANSWER, "answer": found.culprit},
        editable=(ANSWER,),
        operators=(f"planted:{dimension}",),
        metadata={"candidates": sorted(found.shares.keys() - {found.culprit})},
    )
    return await proved(draft, project, bench)
