"""A background agent on disk: `$ETUDE_AGENTS` (else `etude/agents` in the state folder) `/ID/`.

agent.json     its request, its workspace and its model
tree/          its git worktree, on branch etude/ID
events.jsonl   its events, as `etude agent --json` prints them
inbox.jsonl    messages to it; inbox.heard holds how many bytes of them it has read
lock           locked (flock) as long as its process lives; a process id could be reused by another process
status.json    how it ended; absent while it runs, and after a kill
log.txt        the output of its process
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from etude.agent.app.errors import UsageError
from etude.agent.app.inbox_file import clear_inbox
from etude.agent.app.workspace_access import SandboxMode
from etude.agent.git_links.home import sessions_home
from etude.agent.harness.approval import ApprovalPolicy
from etude.core.files import replace_file

State = Literal["running", "done", "failed", "stopped", "dead"]


@dataclass(frozen=True)
class BackgroundAgent:
    """The content of `agent.json`. Paths are absolute. `folder` is the work folder in its tree, `base` the commit it started from."""

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
    walls: SandboxMode
    network: bool
    approval: ApprovalPolicy
    wanted: dict[str, Any]

    @property
    def home(self) -> Path:
        return agents_home() / self.id

    @property
    def events(self) -> Path:
        return self.home / "events.jsonl"

    @property
    def session(self) -> Path:
        return sessions_home() / f"{self.session_id}.jsonl"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lock(self) -> int:
        """Take the lock and return its descriptor. A process that inherits it holds the lock too. Raises UsageError if the agent runs."""
        fd = os.open(self.home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise UsageError(f"agent {self.id} is running; stop it first: etude agents stop {self.id}") from error
        return fd

    @property
    def is_alive(self) -> bool:
        try:
            os.close(self.lock())
        except UsageError:
            return True
        return False

    @property
    def state(self) -> State:
        """The agent's state. dead: it was killed, and `etude agents resume` resumes it."""
        if self.is_alive:
            return "running"
        file = self.home / "status.json"
        if not file.exists():
            return "dead"
        code = json.loads(file.read_text())["code"]
        return "done" if code == 0 else "stopped" if code == 130 else "failed"

    def record_end(self, code: int) -> None:
        """Record the exit status of its process."""
        _write(self.home / "status.json", {"code": code})

    def record_start(self) -> None:
        """Record that its process starts or restarts. The caller holds the lock."""
        (self.home / "status.json").unlink(missing_ok=True)
        clear_inbox(self.home)

    def save(self) -> None:
        _write(self.home / "agent.json", self.to_json())


def agents_home() -> Path:
    """The folder of the user's background agents, as a real path, because sandboxes accept no other."""
    if chosen := os.environ.get("ETUDE_AGENTS"):
        return Path(chosen).resolve()
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state").resolve() / "etude" / "agents"


def list_agents() -> list[BackgroundAgent]:
    """All agents, oldest first."""
    files = agents_home().glob("*/agent.json") if agents_home().is_dir() else ()
    return sorted(
        (BackgroundAgent(**json.loads(file.read_text())) for file in files), key=lambda agent: agent.created_unix_s
    )


def find_agent(named: str) -> BackgroundAgent:
    """The agent with this id or prefix of an id. Raises UsageError."""
    matches = [one for one in list_agents() if one.id.startswith(named)]
    if len(matches) != 1:
        problem = f"{len(matches)} agents begin with {named!r}" if matches else f"there is no agent {named!r}"
        raise UsageError(f"{problem}; `etude agents ls` shows them")
    return matches[0]


def _write(file: Path, row: dict[str, Any]) -> None:
    replace_file(file, json.dumps(row))
