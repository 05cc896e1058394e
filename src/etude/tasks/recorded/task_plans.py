"""Candidates from recorded sessions: CursorBench's way, request as typed and the change that came of it.

Sessions that began from the same commit with the same request are solutions of one task: the first is the reference, the
tests are run on the others too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.git_links.git import GitError
from etude.agent.git_links.git import repository as root_of
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.mix.phrases import match_phrase
from etude.tasks.recorded.origin import Origin, origin_of
from etude.tasks.recorded.session import RecordedSession
from etude.tasks.task import Task
from etude.tasks.tree import TreeTooLarge, tree
from etude.tasks.validation.change import GradingContext, RepositoryChange, prove_change
from etude.tasks.validation.suite_build import Candidate

LEVEL = "session"
STYLE = "typed"  # as a person wrote it, nothing added
_OTHERWISE = "features"


@dataclass(frozen=True)
class RecordedTaskPlan:
    """One task to be: its reference and further solutions."""

    reference: Origin
    others: tuple[Origin, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.reference.repository.name}-{self.reference.head[:10]}"


def plan_recorded_tasks(
    sessions: Sequence[RecordedSession], repository: Path | None
) -> tuple[list[RecordedTaskPlan], dict[str, str]]:
    """The requests that sessions gave, and why others gave none, by session id. `repository` replaces their own folders."""
    origins: list[Origin] = []
    left_out: dict[str, str] = {}
    for session in sessions:
        try:
            origins.append(origin_of(session, _repository(session, repository)))
        except (CandidateRejected, GitError) as error:
            left_out[session.id] = str(error)
    groups: dict[tuple[Path, str, str], list[Origin]] = {}
    for origin in origins:
        request = " ".join(origin.session.request.lower().split())
        groups.setdefault((origin.repository, origin.base, request), []).append(origin)
    found: dict[str, RecordedTaskPlan] = {}
    for group in groups.values():
        one = RecordedTaskPlan(group[0], tuple(o for o in group[1:] if o.head != group[0].head))
        earlier = found.get(one.id)
        if earlier is not None:
            smaller = min(earlier, one, key=lambda plan: plan.reference.lines)
            one = earlier if smaller is one else one
            left_out[smaller.reference.session.id] = f"another session wrote more of commit {one.reference.head[:12]}"
        found[one.id] = one
    return [*found.values()], left_out


def candidates(found: Sequence[RecordedTaskPlan], bench: GradingContext, command: tuple[str, ...]) -> list[Candidate]:
    """In the order of the sessions."""
    return [Candidate(one.id, _builder(one, bench, command)) for one in found]


def _builder(one: RecordedTaskPlan, bench: GradingContext, command: tuple[str, ...]):
    async def build() -> Task:
        try:
            change = change_of(one, command)
        except GitError as error:
            raise CandidateRejected(f"its state can't be made: {error}") from error
        return await prove_change(change, bench)

    return build


def other_solutions(found: Sequence[RecordedTaskPlan]) -> Callable[[Task], list[dict[str, str]]]:
    """The files of a task's further solutions, by the task."""
    by_id = {one.id: one for one in found}

    def others(task: Task) -> list[dict[str, str]]:
        return [tree(other.repository, other.head).files for other in by_id[task.id].others]

    return others


def change_of(one: RecordedTaskPlan, command: tuple[str, ...]) -> RepositoryChange:
    """Raises CandidateRejected, GitError."""
    origin, session = one.reference, one.reference.session
    try:
        before, after = (tree(origin.repository, commit) for commit in (origin.base, origin.head))
        others = [tree(other.repository, other.head).files for other in one.others]
    except TreeTooLarge as error:
        raise CandidateRejected(str(error)) from error
    return RepositoryChange(
        one.id,
        category(session.request),
        LEVEL,
        session.request,
        before.files,
        after.files,
        others,
        command,
        metadata={
            "project": origin.repository.name,
            "base_commit": origin.base,
            "commit": origin.head,
            "session": session.id,
            "tie": origin.how,
            "style": STYLE,
            "redacted": session.redacted,
            "left_out": list(before.left_out),
        },
    )


def category(request: str) -> str:
    """A task's category by the words of its request."""
    match = match_phrase(request)
    return match.category if match else _OTHERWISE


def _repository(session: RecordedSession, named: Path | None) -> Path:
    if named is not None:
        return root_of(named)
    if session.workspace is None or not session.workspace.is_dir():
        raise CandidateRejected(
            f"its folder {session.workspace or '(none recorded)'} is not here: name the repository with --repository"
        )
    return root_of(session.workspace)
