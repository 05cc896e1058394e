"""The post-commit hook that links each commit as it is made."""

from __future__ import annotations

import os
from pathlib import Path

from etude.agent.git_links.git import GitError, git

MARK = "# etude: ties the commit to the sessions that wrote its lines"
LINE = "command -v etude >/dev/null 2>&1 && etude session link HEAD --write >/dev/null"
SCRIPT = f"#!/bin/sh\n{MARK}\n{LINE} || echo 'etude: this commit was not linked; etude session link HEAD --write says why' >&2\n"


def install_hook(repository: Path) -> Path:
    """Write the hook; one that is ours is renewed. Raises GitError if another hook is there: it is the person's."""
    path = repository / os.fsdecode(git(repository, "rev-parse", "--git-path", "hooks/post-commit").strip())
    if path.exists() and MARK not in path.read_text(errors="replace"):
        raise GitError(f"{path} exists and is not ours; add this line to it yourself: {LINE}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path
