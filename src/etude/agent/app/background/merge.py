"""Merges an agent's work: commits it on its branch, then squashes or merges that into the user's branch. Conflicts are refused.

`git merge-tree` finds conflicts without changing a file, so that a refusal changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.background.record import BackgroundAgent
from etude.agent.app.errors import UsageError
from etude.agent.git_links.git import GitError, git


@dataclass(frozen=True)
class MergeResult:
    """`commit` is empty after a squash, which stages the changes for the user to commit."""

    branch: str
    files: list[str]
    commit: str


def merge_agent(agent: BackgroundAgent, *, squash: bool, message: str | None = None) -> MergeResult:
    """Merge an agent's branch. Raises UsageError if the agent runs, changed nothing, or conflicts with the user's branch."""
    if agent.is_alive:
        raise UsageError(f"agent {agent.id} is still running; wait, or etude agents stop {agent.id}")
    tree, home = Path(agent.tree), Path(agent.repository)
    commit_leftovers(agent, message)
    files = git(tree, "diff", "--name-only", "-z", f"{agent.base}...{agent.branch}").decode().split("\0")[:-1]
    if not files:
        raise UsageError(f"agent {agent.id} changed nothing; etude agents rm {agent.id} takes it away")
    _require_clean(agent, home, files)
    _require_no_conflict(agent, home)
    if squash:
        git(home, "merge", "--squash", "--quiet", agent.branch)
        return MergeResult(agent.branch, files, "")
    subject = message or f"Merge {agent.branch}: {_subject(agent)}"
    git(home, "merge", "--no-ff", "--quiet", "-m", subject, agent.branch)
    return MergeResult(agent.branch, files, git(home, "rev-parse", "HEAD").decode().strip())


def commit_leftovers(agent: BackgroundAgent, message: str | None = None) -> None:
    """Commit the agent's uncommitted changes on its branch."""
    tree = Path(agent.tree)
    git(tree, "add", "--all")
    if git(tree, "status", "--porcelain"):
        git(tree, "commit", "--quiet", "--no-verify", "-m", message or _subject(agent))


def count_unmerged(agent: BackgroundAgent) -> int:
    """Number of the agent's changed files that its repository does not hold in the same state. Removal would lose them."""
    tree, home = Path(agent.tree), Path(agent.repository)
    loose = len(git(tree, "status", "--porcelain").splitlines()) if tree.is_dir() else 0
    names = git(home, "diff", "--name-only", "-z", f"{agent.base}...{agent.branch}").decode().split("\0")[:-1]
    missing = [
        name
        for name in names
        if _blob(home, agent.branch, name) not in (_blob(home, "HEAD", name), _staged(home, name))
    ]
    return loose + len(missing)


def _require_clean(agent: BackgroundAgent, home: Path, files: list[str]) -> None:
    """Raise UsageError if the merge would overwrite uncommitted changes of the user."""
    mine = git(home, "status", "--porcelain", "-z", "--no-renames").decode().split("\0")[:-1]
    both = sorted({row[3:] for row in mine} & set(files))
    if both:
        raise UsageError(
            f"you have uncommitted changes in {', '.join(both[:8])}, which agent {agent.id} changed too; commit or stash them first"
        )


def _require_no_conflict(agent: BackgroundAgent, home: Path) -> None:
    try:
        git(home, "merge-tree", "--write-tree", "--name-only", "--no-messages", "HEAD", agent.branch)
    except GitError as error:
        raise UsageError(
            f"{agent.branch} conflicts with your branch; nothing was changed. Resolve it there: cd {agent.tree} && git rebase "
            f'{_branch(home)}, then merge again; or etude agents resume {agent.id} -p "rebase onto {_branch(home)}"'
        ) from error


def _branch(home: Path) -> str:
    return git(home, "branch", "--show-current").decode().strip() or "HEAD"


def _subject(agent: BackgroundAgent) -> str:
    lines = agent.request.strip().splitlines()
    return lines[0][:72] if lines else agent.branch


def _blob(home: Path, commit: str, name: str) -> bytes:
    return git(home, "ls-tree", "--format=%(objectname)", commit, "--", name).strip()


def _staged(home: Path, name: str) -> bytes:
    return git(home, "ls-files", "--format=%(objectname)", "--", name).strip()
