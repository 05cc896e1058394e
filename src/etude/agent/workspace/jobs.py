"""Background commands of a session: started, looked at, ended. They outlive the call that started them, never the session.

A job is a process group whose output and exit status lie in files of $OUTPUTS; so it needs nothing of a machine but commands and
files, and works the same in a sandbox and outside. All its processes carry its mark (`scripts/kill_tree.py`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass

from etude.agent.workspace import scripts
from etude.agent.workspace.shell_state import Launch
from etude.agent.workspace.workspace import Workspace
from etude.sandbox.errors import InfraError

# A sandbox limits a command's CPU seconds to about its time-out, and what it starts inherits that: as long as a session may last.
JOB_LIMIT_S = 3600.0
# Between SIGTERM and SIGKILL.
GRACE_S = 2.0
# How often a wait looks: quickly at first, since most waits are for something that is nearly done.
_FIRST_LOOK_S, _LAST_LOOK_S = 0.02, 0.5
# What one look returns at most; the rest comes with the next.
MAX_PIECE_BYTES = 1 << 18

# Where /proc is closed and commands are shut off from each other (back end `process`), a job could be neither seen nor ended.
# A command line that is too long for a word comes on stdin, and waits in a file for the job's own shell.
_START = """mark=$1; name=$2; OUTPUTS=$3; shift 3
{ read -r etude_state </proc/self/stat; } 2>/dev/null || { echo "no background work is possible in this sandbox"; exit 1; }
mkdir -p "$OUTPUTS" && : > "$OUTPUTS/$name.txt" || exit 1
cat > "$OUTPUTS/$name.in" || exit 1
export OUTPUTS ETUDE_JOB="$mark"
setsid sh -c '"$@" > "$OUTPUTS/$0.txt" 2>&1; echo $? > "$OUTPUTS/$0.end"' "$name" "$@" <"$OUTPUTS/$name.in" >/dev/null 2>&1 &
echo $!
"""


@dataclass
class BackgroundJob:
    """One background command. `read_bytes`: how much of its output was handed out."""

    number: int
    command: str
    mark: str
    pid: int
    read_bytes: int = 0
    rc: int | None = None
    killed: bool = False

    @property
    def name(self) -> str:
        return f"job-{self.number}"


@dataclass(frozen=True)
class Look:
    """What came since the last look, and how the job is: "running", "exit 0", "killed"."""

    output: bytes
    status: str


class Jobs:
    """The jobs of one session, by number."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._jobs: dict[int, BackgroundJob] = {}

    def __getitem__(self, number: int) -> BackgroundJob:
        """Raises KeyError."""
        return self._jobs[number]

    @property
    def numbers(self) -> list[int]:
        return list(self._jobs)

    async def start(self, command: str, launch: Launch) -> BackgroundJob:
        """Start a process in the background. Raises OSError if the machine did not."""
        number = len(self._jobs) + 1
        mark = uuid.uuid4().hex
        words = ["/bin/sh", "-c", _START, "start", mark, f"job-{number}", launch.outputs, *launch.argv]
        started = await self._workspace.run(
            words, timeout_s=JOB_LIMIT_S, max_output_bytes=1 << 13, env=launch.env, stdin=launch.stdin
        )
        if started.rc != 0 or not started.out.strip().isdigit():
            raise OSError((started.err + started.out).decode(errors="replace").strip() or "the shell did not start it")
        self._jobs[number] = BackgroundJob(number, command, mark, int(started.out))
        return self._jobs[number]

    async def look(self, job: BackgroundJob, wait_s: float = 0.0) -> Look:
        """What it said since the last look; waits up to `wait_s` for its end."""
        until_s, pause_s = time.monotonic() + wait_s, _FIRST_LOOK_S
        while not await self._ended(job) and (left_s := until_s - time.monotonic()) > 0:
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LAST_LOOK_S)
        piece = await self._workspace.output(f"{job.name}.txt", job.read_bytes, MAX_PIECE_BYTES)
        job.read_bytes += len(piece)
        return Look(piece, _status(job))

    async def kill(self, job: BackgroundJob) -> None:
        """End it and everything it started; SIGKILL follows where SIGTERM is ignored."""
        if await self._ended(job):
            return
        kill = scripts.command("kill_tree", f"ETUDE_JOB={job.mark}", str(GRACE_S))
        done = await self._workspace.run(kill, timeout_s=GRACE_S + 10, max_output_bytes=1 << 13)
        if done.rc != 0:
            raise OSError(f"job {job.number} could not be killed: {done.err.decode(errors='replace').strip()[-200:]}")
        job.killed = True

    async def close(self) -> None:
        """End all that run; called when the session ends. A machine that has died took its jobs along.

        Raises InfraError if one won't die.
        """
        try:
            for job in self._jobs.values():
                await self.kill(job)
        except InfraError:
            return
        except OSError as error:
            raise InfraError(str(error)) from error

    async def _ended(self, job: BackgroundJob) -> bool:
        if job.killed or job.rc is not None:
            return True
        if text := (await self._workspace.output(f"{job.name}.end", 0, 16)).strip():
            job.rc = int(text)
            return True
        asked = ["grep", "-qE", r"\) [^ZX] ", f"/proc/{job.pid}/stat"]
        alive = await self._workspace.run(asked, timeout_s=10, max_output_bytes=1 << 10)
        if alive.rc == 0:
            return False
        text = (
            await self._workspace.output(f"{job.name}.end", 0, 16)
        ).strip()  # it may have ended between the two looks
        job.rc, job.killed = (int(text), False) if text else (None, True)
        return True


def _status(job: BackgroundJob) -> str:
    if job.rc is not None:
        return f"exit {job.rc}"
    return "killed" if job.killed else "running"
