"""Starts agents: a branch and a worktree at the present commit, and a process that outlives the terminal."""

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
from etude.agent.app.background.record import Berth, fleet_home
from etude.agent.app.errors import BadUse
from etude.agent.app.headless import Job
from etude.agent.app.model import Choice
from etude.agent.git_links.git import GitError, git, repository


def start(job: Job) -> Berth:
    """Begin the job in the background. Raises BadUse where the folder is in no repository with a commit."""
    folder = job.place.folder
    try:
        root = repository(folder)
        base = git(root, "rev-parse", "--verify", "HEAD^{commit}").decode().strip()
    except GitError as error:
        raise BadUse(
            f"{folder}: agents in the background get a git worktree each, and this is in no repository with a commit; "
            "run git init and commit, or leave out --background"
        ) from error
    if job.session is not None:
        raise BadUse("--background begins a new session; `etude agents resume ID` goes on with one of the background")
    name = secrets.token_hex(3)
    tree = fleet_home() / name / "tree"
    made = Berth(
        id=name, session_id=f"{time.strftime('%Y%m%d-%H%M%S')}-{name}", request=job.ask.request,
        test_command=list(job.ask.test_command), repository=str(root), tree=str(tree),
        folder=str(tree / folder.relative_to(root)), branch=f"etude/{name}", base=base,
        created_unix_s=round(time.time(), 3), choice=_absolute(job.choice).to_json(), walls=job.place.walls,
        network=job.place.network, approval=job.approval, wanted=job.wanted.to_json(),
    )  # fmt: skip
    made.home.mkdir(parents=True)
    _add_tree(root, made)
    made.save()
    spawn(made, job.ask.request)
    return made


def spawn(made: Berth, request: str) -> None:
    """A process that works on the request. It holds the lock from its first moment, and no terminal."""
    lock = made.lock()
    try:
        made.begin()
        source = str(Path(etude.__file__).parent.parent)
        paths = os.pathsep.join(path for path in (source, os.environ.get("PYTHONPATH")) if path)
        with open(made.home / "log.txt", "ab") as log:
            subprocess.Popen(
                [sys.executable, "-P", "-m", "etude.agent.app.background.process", made.id, request],
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


def _add_tree(root: Path, made: Berth) -> None:
    """One at a time: git's own locks make the second one fail instead of wait."""
    with open(fleet_home() / ".start", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        git(root, "worktree", "add", "--quiet", "-b", made.branch, made.tree, made.base)


def _absolute(choice: Choice) -> Choice:
    """The process works elsewhere: a checkpoint's folder by its full path."""
    local = not choice.model.startswith(("http://", "https://"))
    return replace(choice, model=str(Path(choice.model).resolve())) if local else choice
