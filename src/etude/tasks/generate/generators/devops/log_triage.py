"""Log triage: a day's log of a service made of the project's modules, a planted cause, one question with one answer.

The log is a file of the workspace, or lies in a log service of the agent's sandbox that has to be asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from etude.sandbox.services.presets import LOGS_PORT
from etude.tasks.environment.attached import KEY as SERVICES
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.devops.logs import DIMENSIONS, Dimension, day, records
from etude.tasks.generate.generators.kinds.draft import ProjectTaskDraft, prove_draft_task
from etude.tasks.generate.generators.kinds.modules import modules
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.graders.answer import NAME as GRADER
from etude.tasks.task import Task
from etude.tasks.validation.suite_build import Candidate

LOG, ANSWER = "logs/2024-03-05.log", "answer.txt"
SERVICE = f"http://127.0.0.1:{LOGS_PORT}"
REPORT_REQUEST = (
    f"`GET {SERVICE}/query?text=&since=&until=&limit=&FIELD=VALUE` answers with matching records (time in seconds since 1970, the newest"
    f" `limit` of them, 1000 if none is given), `GET {SERVICE}/fields` with the values of each field"
)
FEWEST_MODULES, MOST_MODULES = 4, 10


class LogTriage:
    """For each dimension that the cause can lie in one task with the log in a file, and one with a service that has it."""

    name = "log_triage"
    category = "devops"
    languages: tuple[str, ...] = ("python",)

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        for served in (False, True):
            for dimension in DIMENSIONS:
                task_id = f"{project.name}/log-triage/{'service-' if served else ''}{dimension}"
                yield Candidate(task_id, partial(build, task_id, dimension, seed, project, bench, served=served))


async def build(
    task_id: str,
    dimension: Dimension,
    seed: int,
    project: InstalledProject,
    bench: ProofContext,
    *,
    served: bool = False,
) -> Task:
    """Raises CandidateRejected, InfraError."""
    rng = random.Random(f"{task_id} {seed}")
    named = _modules_in_packages(project)
    if taken := sorted({LOG, ANSWER} & project.files.keys()):
        raise CandidateRejected(f"the project has {taken[0]} of its own")
    found = day(dimension, rng.sample(named, min(MOST_MODULES, len(named))), rng)
    if not found.clear:
        raise CandidateRejected(f"the log does not single out one {dimension}")
    where = f"the log service at {SERVICE}" if served else f"`{LOG}`"
    draft = ProjectTaskDraft(
        id=task_id,
        category=LogTriage.category,
        level="log-triage",
        generator=LogTriage.name,
        grader=GRADER,
        facts=_facts(dimension, where, served),
        demand=f"Find it in {where} and write the {dimension} into `{ANSWER}`, one line, nothing else.",
        files=dict(project.files) | ({} if served else {LOG: found.text}),
        solution={ANSWER: f"{found.culprit}\n"},
        hidden={"path": ANSWER, "answer": found.culprit},
        editable=(ANSWER,),
        operators=(f"planted:{dimension}", *(("log-service",) if served else ())),
        metadata={
            "candidates": sorted(found.shares.keys() - {found.culprit}),
            **({SERVICES: [{"name": "log_service", "files": {"log.jsonl": records(found.text)}}]} if served else {}),
        },
    )
    return await prove_draft_task(draft, project, bench)


def _modules_in_packages(project: InstalledProject) -> list[str]:
    named = [name for name in modules(project).values() if "." in name]
    if len(named) < FEWEST_MODULES:
        raise CandidateRejected(
            f"it has {len(named)} modules in packages, {FEWEST_MODULES} are needed: the answer could be guessed"
        )
    return named


def _facts(dimension: Dimension, where: str, served: bool) -> Facts:
    return Facts(
        headline=f"requests in {where} miss their deadline much more often with one {dimension} than with all others, find out which",
        place=where,
        expected=f"the name of the {dimension} alone, as the log spells it",
        notes=(
            "Deadlines are missed now and then everywhere; what counts is the share",
            *(("Which build a host runs is told when it starts",) if dimension == "build" else ()),
            *((REPORT_REQUEST,) if served else ()),
        ),
    )
