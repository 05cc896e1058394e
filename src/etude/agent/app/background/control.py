"""Operations of the user on background agents: follow, send a message, stop, resume, remove."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from etude.agent.app.background.merge import unmerged
from etude.agent.app.background.record import BackgroundAgent
from etude.agent.app.background.start import spawn_process
from etude.agent.app.errors import UnavailableError, UsageError
from etude.agent.app.events import Event
from etude.agent.app.inbox_file import MessageKind, acknowledged_bytes, write_message
from etude.agent.app.indexing import delete_index
from etude.agent.git_links.git import GitError, git

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
    if home.is_dir() and not force and (count := unmerged(agent)):
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
