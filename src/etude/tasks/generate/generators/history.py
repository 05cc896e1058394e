"""Generator `history`: commits of a local repository, and runs of one author's commits squashed into one goal; the message is the request.

The installed project is one state of that repository, and its environment runs the neighbouring states. A commit whose tests it does not run
gets a separate environment (`commit_environments`), where a making gives it some.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from etude.agent.git_links.git import GitError, git
from etude.tasks.fail_to_pass import CandidateRejected, TestsDoNotRun
from etude.tasks.generate.generator import InstalledProject, ProofContext
from etude.tasks.generate.generators.commit_environments import Environments
from etude.tasks.generate.generators.request_text import request_of
from etude.tasks.generate.generators.states import States, prove_states
from etude.tasks.generate.prompts.checks import words
from etude.tasks.generate.prompts.facts import Facts
from etude.tasks.generate.protocols import InstallResult
from etude.tasks.recorded.task_plans import category
from etude.tasks.task import Task
from etude.tasks.tree import TreeTooLarge, tree
from etude.tasks.validation.suite_build import Candidate

NAME = "history"
DEPTH = 400  # commits looked through, the newest first
RUN = 4  # commits of one author in a row that may be one goal
FORMAT = "%H%x1f%P%x1f%ae%x1f%B%x1e"


@dataclass(frozen=True)
class Commit:
    id: str
    parents: tuple[str, ...]
    author: str
    message: str


@dataclass
class HistoryGenerator:
    """`repositories`: the local repository of a project, by the project's name without its version; `environments`: of commits, None where
    only the project's own is used."""

    repositories: Mapping[str, Path] = field(default_factory=dict)
    environments: Environments | None = None
    name: str = NAME
    category: str = "features"
    languages: tuple[str, ...] = ("python", "javascript", "typescript", "go", "rust", "java")

    def candidates(self, project: InstalledProject, bench: ProofContext, seed: int) -> Iterator[Candidate]:
        repository = self.repositories.get(project.environment.project)
        if repository is None:
            return
        for run in runs(commits(repository, project.environment.version)):
            squashed = f"{run[0].id[:8]}-" if len(run) > 1 else ""
            task_id = f"{category(run[-1].message)}/{project.name}/{NAME}/{squashed}{run[-1].id[:10]}"
            yield Candidate(task_id, partial(build, project, bench, repository, tuple(run), task_id, self.environments))

    def installed_as(self, environment: str) -> InstallResult | None:
        """What a commit's tests needed instead of the project's own environment."""
        return self.environments.installed_as(environment) if self.environments else None


def commits(repository: Path, newest: str) -> list[Commit]:
    """The last `DEPTH` up to `newest`, oldest first, as one line of descent."""
    listed = git(repository, "log", f"-n{DEPTH}", "--first-parent", "--reverse", f"--format={FORMAT}", newest, "--")
    found = []
    for row in filter(None, (row.strip("\n") for row in listed.decode("utf-8", "replace").split("\x1e"))):
        commit, parents, author, message = row.split("\x1f", 3)
        found.append(Commit(commit, tuple(parents.split()), author, request_of(message)))
    return found


def runs(line: Sequence[Commit]) -> list[list[Commit]]:
    """Every commit alone, the newest first; then each author's unbroken runs. Merges, and what says nothing, are in none."""
    alone = [[commit] for commit in reversed(line) if _goal(commit)]
    together: list[list[Commit]] = []
    run: list[Commit] = []
    for commit in line:
        if run and (not _goal(commit) or commit.author != run[-1].author or len(run) == RUN):
            together.append(run)
            run = []
        if _goal(commit):
            run.append(commit)
    return [*alone, *(run for run in [*together, run][::-1] if len(run) > 1)]


def facts_of(run: Sequence[Commit]) -> Facts:
    """The last commit's first line is the goal, the earlier ones' are parts of it."""
    first, _, rest = run[-1].message.partition("\n")
    parts = tuple(commit.message.partition("\n")[0] for commit in run[:-1])
    return Facts(headline=first.strip(), expected=rest.strip(), notes=parts)


async def build(
    project: InstalledProject,
    bench: ProofContext,
    repository: Path,
    run: Sequence[Commit],
    task_id: str,
    environments: Environments | None = None,
) -> Task:
    """Raises CandidateRejected, InfraError."""
    try:
        before, after = tree(repository, run[0].parents[0]), tree(repository, run[-1].id)
    except (GitError, TreeTooLarge) as error:
        raise CandidateRejected(f"its state can't be made: {error}") from error
    facts = facts_of(run)
    # A short prompt that leaves out one of several goals would ask for less than the tests do.
    goals = {"must_say": sorted(words(" ".join((facts.headline, *facts.notes))))} if facts.notes else {}
    states = States(
        task_id,
        category(run[-1].message),
        NAME,
        facts,
        before.files,
        after.files,
        ("squashed-commits" if len(run) > 1 else "commit",),
        {"base_commit": run[0].parents[0], "commit": run[-1].id, "left_out": list(before.left_out), **goals},
    )
    try:
        return await prove_states(project, bench, states)
    except TestsDoNotRun as error:
        if environments is None:
            raise
        why = str(error)
    try:
        built = await environments.of(project.environment.project, run[-1].id, after.files)
        return await prove_states(built.installed, bench, states)
    except CandidateRejected as error:
        raise CandidateRejected(
            f"{error} (in the project's own environment: {' '.join(why.split())[-300:]})"
        ) from error


def _goal(commit: Commit) -> bool:
    return len(commit.parents) == 1 and len(commit.message.split()) >= 2
