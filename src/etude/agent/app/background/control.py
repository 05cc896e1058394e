"""Operations of the user on background agents: follow, send a message, stop, resume, remove."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import etude
from etude.agent.app.background.merge import count_unmerged
from etude.agent.app.background.record import BackgroundAgent, agents_home
from etude.agent.app.errors import UnavailableError, UsageError
from etude.agent.app.events import Event
from etude.agent.app.headless import AgentJob
from etude.agent.app.inbox_file import MessageKind, acknowledged_bytes, write_message
from etude.agent.app.indexing import delete_index
from etude.agent.app.model import ModelChoice
from etude.agent.git_links.git import GitError, git, repository

# Starts background agents: a branch and a worktree at the current commit, and a process that outlives the terminal.


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


# An interrupted turn ends within seconds, whatever it ran.
STOP_TIMEOUT_S = 30.0
POLL_S = 0.1
# An agent polls ten times a second, but a starting agent loads its model first.
ACKNOWLEDGE_TIMEOUT_S = 60.0
ACKNOWLEDGE_POLL_S = 0.02


def follow(agent: BackgroundAgent, *, live: bool = True) -> Iterator[Event | None]:
    """Yield its events from the first one. With `live`, continue until it ends, and yield None when there is nothing new."""
    read = 0
    while True:
        alive = live and agent.is_alive
        with open(agent.events, "rb") if agent.events.exists() else open("/dev/null", "rb") as file:
            file.seek(read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        read += len(whole)
        yield from (json.loads(line) for line in whole.split(b"\n")[:-1])
        if not whole and not alive:
            return
        if not whole:
            yield None


def send_message(agent: BackgroundAgent, text: str, manner: MessageKind = "steer") -> None:
    """Send a message, and return when the agent has read it. Raises UsageError for an agent that ended before that, UnavailableError for
    one that does not read it in time."""
    if not agent.is_alive:
        raise UsageError(
            f"agent {agent.id} is {agent.state} and reads no messages; etude agents resume {agent.id} -p …"
        )
    sent_bytes = write_message(agent.home, manner, text)
    until_s = time.monotonic() + ACKNOWLEDGE_TIMEOUT_S
    while acknowledged_bytes(agent.home) < sent_bytes:
        if not agent.is_alive and acknowledged_bytes(agent.home) < sent_bytes:
            raise UsageError(
                f"agent {agent.id} ended before it read that ({agent.state}); etude agents resume {agent.id} -p …"
            )
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"agent {agent.id} has not read that within {ACKNOWLEDGE_TIMEOUT_S:g} s; see {agent.home / 'log.txt'}"
            )
        time.sleep(ACKNOWLEDGE_POLL_S)


def stop_agent(agent: BackgroundAgent) -> None:
    """Stop the agent, and return when its process has ended. Raises UnavailableError if it does not end in time."""
    if not agent.is_alive:
        return
    write_message(agent.home, "stop")
    until_s = time.monotonic() + STOP_TIMEOUT_S
    while agent.is_alive:
        if time.monotonic() > until_s:
            raise UnavailableError(
                f"agent {agent.id} did not stop within {STOP_TIMEOUT_S:g} s; see {agent.home / 'log.txt'}"
            )
        time.sleep(POLL_S)


def resume_agent(agent: BackgroundAgent, request: str) -> None:
    """Resume an agent that ended or was killed. Raises UsageError if it runs."""
    if not Path(agent.folder).is_dir():
        raise UsageError(f"the worktree {agent.tree} is gone; etude agents rm {agent.id} --force, and start a new one")
    spawn_process(agent, request)


def remove_agent(agent: BackgroundAgent, *, force: bool = False) -> None:
    """Remove an agent's worktree, branch and files, but not its session. Raises UsageError for work that was not merged."""
    if agent.is_alive:
        raise UsageError(f"agent {agent.id} is running; etude agents stop {agent.id}")
    home = Path(agent.repository)
    if home.is_dir() and not force and (count := count_unmerged(agent)):
        raise UsageError(
            f"{count} files of agent {agent.id} are not in your branch; etude agents merge {agent.id}, or rm --force"
        )
    if home.is_dir():
        for words in (
            ("worktree", "remove", "--force", agent.tree),
            ("worktree", "prune"),
            ("branch", "-D", agent.branch),
        ):
            try:
                git(home, *words)
            except GitError:
                if not force:
                    raise
    delete_index(Path(agent.folder))
    shutil.rmtree(agent.home)
