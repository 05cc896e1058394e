"""Brings an agent's work home: committed on its branch, then squashed into the person's branch, or merged. Refused where it conflicts.

Whether it conflicts is found without touching a file (`git merge-tree`), so that a refusal changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from etude.agent.app.background.record import Berth
from etude.agent.app.errors import BadUse
from etude.agent.git_links.git import GitError, git


@dataclass(frozen=True)
class Merged:
    """`commit` is empty after a squash: the changes are staged for the person to commit."""

    branch: str
    files: list[str]
    commit: str


def merge(own: Berth, *, squash: bool, message: str | None = None) -> Merged:
    """Raises BadUse: the agent runs, it changed nothing, or the person's branch and it have changed the same lines."""
    if own.alive:
        raise BadUse(f"agent {own.id} is still running; wait, or etude agents stop {own.id}")
    tree, home = Path(own.tree), Path(own.repository)
    keep(own, message)
    files = git(tree, "diff", "--name-only", "-z", f"{own.base}...{own.branch}").decode().split("\0")[:-1]
    if not files:
        raise BadUse(f"agent {own.id} changed nothing; etude agents rm {own.id} takes it away")
    _require_clean(own, home, files)
    _require_peace(own, home)
    if squash:
        git(home, "merge", "--squash", "--quiet", own.branch)
        return Merged(own.branch, files, "")
    subject = message or f"Merge {own.branch}: {_subject(own)}"
    git(home, "merge", "--no-ff", "--quiet", "-m", subject, own.branch)
    return Merged(own.branch, files, git(home, "rev-parse", "HEAD").decode().strip())


def keep(own: Berth, message: str | None = None) -> None:
    """Commit on its branch what the agent left in its tree."""
    tree = Path(own.tree)
    git(tree, "add", "--all")
    if git(tree, "status", "--porcelain"):
        git(tree, "commit", "--quiet", "--no-verify", "-m", message or _subject(own))


def unmerged(own: Berth) -> int:
    """Files that the agent changed and that its repository does not have so: what would be lost with it."""
    tree, home = Path(own.tree), Path(own.repository)
    loose = len(git(tree, "status", "--porcelain").splitlines()) if tree.is_dir() else 0
    names = git(home, "diff", "--name-only", "-z", f"{own.base}...{own.branch}").decode().split("\0")[:-1]
    missing = [
        name for name in names if _blob(home, own.branch, name) not in (_blob(home, "HEAD", name), _staged(home, name))
    ]
    return loose + len(missing)


def _require_clean(own: Berth, home: Path, files: list[str]) -> None:
    """What the person has not committed may not be written over."""
    mine = git(home, "status", "--porcelain", "-z", "--no-renames").decode().split("\0")[:-1]
    both = sorted({row[3:] for row in mine} & set(files))
    if both:
        raise BadUse(
            f"you have uncommitted changes in {', '.join(both[:8])}, which agent {own.id} changed too; commit or stash them first"
        )


def _require_peace(own: Berth, home: Path) -> None:
    try:
        git(home, "merge-tree", "--write-tree", "--name-only", "--no-messages", "HEAD", own.branch)
    except GitError as error:
        raise BadUse(
            f"{own.branch} conflicts with your branch; nothing was changed. Resolve it there: cd {own.tree} && git rebase "
            f'{_branch(home)}, then merge again; or etude agents resume {own.id} -p "rebase onto {_branch(home)}"'
        ) from error


def _branch(home: Path) -> str:
    return git(home, "branch", "--show-current").decode().strip() or "HEAD"


def _subject(own: Berth) -> str:
    lines = own.request.strip().splitlines()
    return lines[0][:72] if lines else own.branch


def _blob(home: Path, commit: str, name: str) -> bytes:
    return git(home, "ls-tree", "--format=%(objectname)", commit, "--", name).strip()


def _staged(home: Path, name: str) -> bytes:
    return git(home, "ls-files", "--format=%(objectname)", "--", name).strip()
