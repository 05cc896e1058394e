"""Which commits came of a session: by its links, by notes in the repository, or found by the lines it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.agent.git_links.git import commit_changes, git
from etude.agent.git_links.links import in_repository, link_lines
from etude.agent.git_links.notes import noted_commits
from etude.agent.git_links.written import attribute
from etude.tasks.fail_to_pass import CandidateRejected
from etude.tasks.recorded.session import RecordedSession

# Commits after a session that are looked through where nothing links it.
HORIZON = 500
# A commit that came of a session holds at least this share of the lines that the session left.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Origin:
    """A session and the change that came of it: from `base` to `head`, two commits of `repository`. `how` the tie was known."""

    session: RecordedSession
    repository: Path
    base: str
    head: str
    lines: int
    how: str


def origin_of(session: RecordedSession, repository: Path) -> Origin:
    """Raises CandidateRejected with the reason, GitError."""
    order = git(repository, "rev-list", "--topo-order", "--reverse", "--branches", "--tags", "HEAD").decode().split()
    place = {commit: number for number, commit in enumerate(order)}
    for how, counts in (
        ("link", _by_entries(session)),
        ("note", _by_notes(session, repository, place)),
        ("lines", _by_lines(session, repository)),
    ):
        known = {commit: lines for commit, lines in counts.items() if commit in place}
        if known:
            base, head = _span(repository, sorted(known, key=place.__getitem__), known)
            return Origin(session, repository, base, head, sum(known.values()), how)
    if not in_repository(repository, session.header, session.entries).count:
        raise CandidateRejected("it left no lines that it recorded, and nothing links it: its commit can't be found")
    raise CandidateRejected(
        f"no commit of {repository} holds its lines: nothing came of it, or it was committed elsewhere"
    )


def _by_entries(session: RecordedSession) -> dict[str, int]:
    return {e.data["commit"]: int(e.data["lines"]) for e in session.entries if e.type == "link"}


def _by_notes(session: RecordedSession, repository: Path, known: dict[str, int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for commit in noted_commits(repository):
        if commit in known:
            places = [p for p in link_lines(repository, commit) if p.session_id == session.id and p.state != "lost"]
            lines = sum(p.end_line - p.start_line + 1 for p in places)
            counts |= {commit: lines} if lines else {}
    return counts


def _by_lines(session: RecordedSession, repository: Path) -> dict[str, int]:
    """The first commit after the session's beginning that holds most of what it left."""
    own = in_repository(repository, session.header, session.entries)
    if not own.count:
        return {}
    since = f"--since={int(session.header.created_unix_s)}"
    listed = git(repository, "rev-list", "--no-merges", "--reverse", since, "--branches", "HEAD").decode().split()
    best: dict[str, int] = {}
    for commit in listed[:HORIZON]:
        spans = (span for change in commit_changes(repository, commit) for span in attribute(change, [own]))
        lines = sum(span.end_line - span.start_line + 1 for span in spans)
        if lines >= LEAST_SHARE * own.count and lines > max(best.values(), default=0):
            best = {commit: lines}
    return best


def _span(repository: Path, commits: Sequence[str], lines: dict[str, int]) -> tuple[str, str]:
    """Base and head: an unbroken chain of commits is one change; else the commit with most of its lines is."""
    parents = {commit: _parents(repository, commit) for commit in commits}
    chain = all(parents[after] == [before] for before, after in zip(commits, commits[1:], strict=False))
    first, head = (commits[0], commits[-1]) if chain else (max(commits, key=lines.__getitem__),) * 2
    if not parents[first]:
        raise CandidateRejected(f"{first[:12]} is the first commit of {repository}: there is no state before it")
    if len(parents[first]) > 1:
        raise CandidateRejected(f"{first[:12]} is a merge: which state the session began with is unknown")
    return parents[first][0], head


def _parents(repository: Path, commit: str) -> list[str]:
    return git(repository, "rev-list", "--parents", "-n", "1", commit).decode().split()[1:]
