"""Starts background agents: a branch and a worktree at the current commit, and a process that outlives the terminal."""

from __future__ import annotations

import fcntl
import os
import secrets
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import etude
from etude.agent.app.background.record import BackgroundAgent, agents_home
from etude.agent.app.errors import UsageError
from etude.agent.app.headless import AgentJob
from etude.agent.app.model import ModelChoice
from etude.agent.git_links.git import GitError, git, repository


def start_agent(job: AgentJob) -> BackgroundAgent:
    """Start the job in the background. Raises UsageError if the folder is in no repository with a commit."""
    folder = job.workspace.folder
    try:
        root = repository(folder)
        base = git(root, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
    except GitError as error:
        raise UsageError(
            f"{folder}: agents in the background get a git worktree each, and this is in no repository with a commit; "
            "run git init and commit, or leave out --background"
        ) from error
    if job.session is not None:
        raise UsageError(
            "--background begins a new session; `etude agents resume ID` goes on with one of the background"
        )
    name = secrets.token_hex(3)
    tree = agents_home() / name / "tree"
    agent = BackgroundAgent(
        id=name, session_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{name}", request=job.start.request,
        test_command=list(job.start.test_command), repository=str(root), tree=str(tree),
        folder=str(tree / folder.relative_to(root)), branch=f"etude/{name}", base=base,
        created_unix_s=round(time.time(), 3), choice=_absolute(job.model).to_json(), walls=job.workspace.sandbox_mode,
        network=job.workspace.network, approval=job.approval, wanted=job.extensions.to_json(),
    )  # fmt: skip
    agent.home.mkdir(parents=True)
    _add_tree(root, agent)
    agent.save()
    spawn_process(agent, job.start.request)
    return agent


def spawn_process(agent: BackgroundAgent, request: str) -> None:
    """Start a process that works on the request. It holds the lock from its start and has no terminal."""
    lock = agent.lock()
    try:
        agent.record_start()
        source = str(Path(etude.__file__).parent.parent)
        paths = os.pathsep.join(path for path in (source, os.environ.get("PYTHONPATH")) if path)
        with open(agent.home / "log.txt", "ab") as log:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "etude.agent.app.background.process", agent.id, request],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
                cwd="/",
                env={**os.environ, "PYTHONPATH": paths},
            )
    finally:
        os.close(lock)


def _add_tree(root: Path, agent: BackgroundAgent) -> None:
    """Add the worktree. A lock serializes this, because git's locks make a second one fail instead of wait."""
    with open(agents_home() / ".start", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        git(root, "worktree", "add", "--quiet", "-b", agent.branch, agent.tree, agent.base)


def _absolute(choice: ModelChoice) -> ModelChoice:
    """The options with an absolute checkpoint path, because the process works in another folder."""
    local = not choice.model.startswith(("http://", "https://"))
    return replace(choice, model=str(Path(choice.model).resolve())) if local else choice
