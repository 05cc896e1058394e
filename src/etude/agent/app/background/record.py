"""An agent of the fleet on disk: `$ETUDE_AGENTS` (else `etude/agents` in the state folder) `/ID/`.

agent.json     what it was asked, where it works, who answers
tree/          its git worktree, on branch etude/ID
events.jsonl   what it does, as `etude agent --json` prints it
inbox.jsonl    what others say to it, and inbox.heard: how much of that it has heard
lock           held (flock) as long as its process lives: no number that another process may have got
status.json    how it ended; absent while it runs, and of one that was killed
log.txt        whatever its process wrote elsewhere
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from etude.agent.app.errors import BadUse
from etude.agent.app.inbox_file import clear
from etude.agent.app.workspace_access import Walls
from etude.agent.git_links.home import sessions_home
from etude.agent.harness.approval import ApprovalPolicy

State = Literal["running", "done", "failed", "stopped", "dead"]


@dataclass(frozen=True)
class Berth:
    """What `agent.json` holds. Paths are absolute; `folder` is where it works within its tree; `base` is the commit it began at."""

    id: str
    session_id: str
    request: str
    test_command: list[str]
    repository: str
    tree: str
    folder: str
    branch: str
    base: str
    created_unix_s: float
    choice: dict[str, Any]
    walls: Walls
    network: bool
    approval: ApprovalPolicy
    wanted: dict[str, Any]

    @property
    def home(self) -> Path:
        return fleet_home() / self.id

    @property
    def events(self) -> Path:
        return self.home / "events.jsonl"

    @property
    def session(self) -> Path:
        return sessions_home() / f"{self.session_id}.jsonl"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lock(self) -> int:
        """A descriptor that holds the lock; whoever inherits it holds it too. Raises BadUse if the agent lives."""
        fd = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise BadUse(f"agent {self.id} is running; stop it first: etude agents stop {self.id}") from error
        return fd

    @property
    def alive(self) -> bool:
        try:
            os.close(self.lock())
        except BadUse:
            return True
        return False

    @property
    def state(self) -> State:
        """dead: it was killed; `etude agents resume` goes on with it."""
        if self.alive:
            return "running"
        file = self.home / "status.json"
        if not file.exists():
            return "dead"
        code = json.loads(file.read_text())["code"]
        return "done" if code == 0 else "stopped" if code == 130 else "failed"

    def ended(self, code: int) -> None:
        """Its process is over, with this exit status."""
        _write(self.home / "status.json", {"code": code})

    def begin(self) -> None:
        """Its process starts (anew); whoever says so holds the lock."""
        (self.home / "status.json").unlink(missing_ok=True)
        clear(self.home)

    def save(self) -> None:
        _write(self.home / "agent.json", self.to_json())


def fleet_home() -> Path:
    """Where the agents of a person lie, by its real path: sandboxes are given no other."""
    if chosen := os.environ.get("ETUDE_AGENTS"):
        return Path(chosen).resolve()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state").resolve() / "etude" / "agents"


def berths() -> list[Berth]:
    """All agents, oldest first."""
    files = fleet_home().glob("*/agent.json") if fleet_home().is_dir() else ()
    return sorted((Berth(**json.loads(file.read_text())) for file in files), key=lambda berth: berth.created_unix_s)


def berth(named: str) -> Berth:
    """The agent of this id, or the one whose id begins so. Raises BadUse."""
    found = [one for one in berths() if one.id.startswith(named)]
    if len(found) != 1:
        told = f"{len(found)} agents begin with {named!r}" if found else f"there is no agent {named!r}"
        raise BadUse(f"{told}; `etude agents ls` shows them")
    return found[0]


def _write(file: Path, row: dict[str, Any]) -> None:
    side = file.with_suffix(".tmp")
    side.write_text(json.dumps(row))
    side.replace(file)
