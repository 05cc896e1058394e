"""Generator `recorded`: sessions of people at a local repository: the request as typed, and the commit that came of it.

A session is tied to its commit by its links, by notes, or by the lines that it wrote (`tasks.recorded`). Sessions that began from the same
commit with the same request are solutions of one task: tests that refuse one of them ask for more than was asked, and make no task.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from etude.agent.git_links.git import GitError
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.states import States, prove_states, with_project_settings
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.prompts.writing import hasty
from etude.tasks.graders.commands import CommandsGrader
from etude.tasks.recorded.session import read_recorded
from etude.tasks.recorded.task_plans import RecordedTaskPlan, category, plan_recorded_tasks
from etude.tasks.task import Task
from etude.tasks.tree import TreeTooLarge, tree
from etude.tasks.validation.suite_build import Candidate

NAME = "recorded"


@dataclass
class RecordedSessions:
    """`repositories`: of projects by name; `sessions`: files and folders of them, ours or other agents'."""

    repositories: Mapping[str, Path] = field(default_factory=dict)
    sessions: Sequence[Path] = ()
    name: str = NAME
    category: str = "features"
    languages: tuple[str, ...] = ("python", "javascript", "typescript", "go", "rust", "java")

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        """Those whose commit is in the project's repository. Raises OSError for sessions that are not there."""
        repository = self.repositories.get(project.environment.project)
        if repository is None or not self.sessions:
            return
        found, _ = plan_recorded_tasks(read_recorded(self.sessions)[0], repository)
        for one in found:
            about = category(one.reference.session.request)
            task_id = f"{about}/{project.name}/{NAME}/{one.reference.head[:10]}"
            yield Candidate(task_id, partial(build, project, bench, one, task_id))


async def build(project: InstalledProject, bench: ProofContext, one: RecordedTaskPlan, task_id: str) -> Task:
    """Raises CandidateRejected, InfraError."""
    origin, request = one.reference, one.reference.session.request
    try:
        before, after = (tree(origin.repository, commit).files for commit in (origin.base, origin.head))
        other_solutions = [tree(other.repository, other.head).files for other in one.others]
    except (GitError, TreeTooLarge) as error:
        raise CandidateRejected(f"its state can't be made: {error}") from error
    details = {
        "base_commit": origin.base,
        "commit": origin.head,
        "session": origin.session.id,
        "tie": origin.how,
        "redacted": origin.session.redacted,
        "solutions": 1 + len(other_solutions),
    }
    facts = Facts(headline=request)
    typed = {"terse": request, "ambiguous": hasty(request, random.Random(task_id)), "full": request}
    states = States(task_id, category(request), NAME, facts, before, after, ("session",), details, typed)
    task = await prove_states(project, bench, states)
    for number, files in enumerate(other_solutions, 1):
        whole = {path: text.encode() for path, text in with_project_settings(project, files).items()}
        verdict = await CommandsGrader().grade(task, whole, bench.pool)
        if not verdict.passed:
            raise CandidateRejected(
                f"its tests refuse another solution of the same request (number {number}): {verdict.reason}"
            )
    return task
