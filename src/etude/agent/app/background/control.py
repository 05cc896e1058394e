"""What a person does with agents in the background: look on, speak, stop, go on, take away."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from etude.agent.app.background.merge import unmerged
from etude.agent.app.background.record import Berth
from etude.agent.app.background.start import spawn
from etude.agent.app.errors import BadUse, OutOfReach
from etude.agent.app.events import Event
from etude.agent.app.inbox_file import Manner, heard, speak
from etude.agent.app.indexing import forget_index
from etude.agent.git_links.git import GitError, git

# A turn that is broken off ends within seconds, whatever it ran.
STOP_S = 30.0
LOOK_S = 0.1
# An agent looks ten times a second; one that is starting loads its model first.
HEAR_S = 60.0
HEAR_LOOK_S = 0.02


def follow(own: Berth, *, live: bool = True) -> Iterator[Event | None]:
    """Its events from the first one; with `live` until it has ended, None whenever there is nothing new for now."""
    read = 0
    while True:
        alive = live and own.alive
        with open(own.events, "rb") if own.events.exists() else open("/dev/null", "rb") as file:
            file.seek(read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        read += len(whole)
        yield from (json.loads(line) for line in whole.split(b"\n")[:-1])
        if not whole and not alive:
            return
        if not whole:
            yield None


def say(own: Berth, text: str, manner: Manner = "steer") -> None:
    """Returns when it was heard. Raises BadUse for an agent that has ended, also if it ended in this moment; OutOfReach if it doesn't
    listen."""
    if not own.alive:
        raise BadUse(f"agent {own.id} is {own.state} and hears nothing; etude agents resume {own.id} -p …")
    said = speak(own.home, manner, text)
    until_s = time.monotonic() + HEAR_S
    while heard(own.home) < said:
        if not own.alive and heard(own.home) < said:
            raise BadUse(f"agent {own.id} ended before it heard that ({own.state}); etude agents resume {own.id} -p …")
        if time.monotonic() > until_s:
            raise OutOfReach(f"agent {own.id} has not heard that within {HEAR_S:g} s; see {own.home / 'log.txt'}")
        time.sleep(HEAR_LOOK_S)


def stop(own: Berth) -> None:
    """Return when its process is gone. Raises OutOfReach if it won't go."""
    if not own.alive:
        return
    speak(own.home, "stop")
    until_s = time.monotonic() + STOP_S
    while own.alive:
        if time.monotonic() > until_s:
            raise OutOfReach(f"agent {own.id} did not stop within {STOP_S:g} s; see {own.home / 'log.txt'}")
        time.sleep(LOOK_S)


def go_on(own: Berth, request: str) -> None:
    """Take up one that has ended or died. Raises BadUse if it runs."""
    if not Path(own.folder).is_dir():
        raise BadUse(f"the worktree {own.tree} is gone; etude agents rm {own.id} --force, and begin anew")
    spawn(own, request)


def take_away(own: Berth, *, force: bool = False) -> None:
    """Worktree, branch and files of an agent; its session stays. Raises BadUse for work that nobody has taken over."""
    if own.alive:
        raise BadUse(f"agent {own.id} is running; etude agents stop {own.id}")
    home = Path(own.repository)
    if home.is_dir() and not force and (count := unmerged(own)):
        raise BadUse(
            f"{count} files of agent {own.id} are not in your branch; etude agents merge {own.id}, or rm --force"
        )
    if home.is_dir():
        for words in (("worktree", "remove", "--force", own.tree), ("worktree", "prune"), ("branch", "-D", own.branch)):
            try:
                git(home, *words)
            except GitError:
                if not force:
                    raise
    forget_index(Path(own.folder))
    shutil.rmtree(own.home)
