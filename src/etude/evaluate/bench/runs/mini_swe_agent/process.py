"""mini-swe-agent's process next to the sandbox: its commands go in, their results come out; it gets nothing else of this machine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("driver.py")
VARIABLE = "ETUDE_MINI_SWE_AGENT"
# It prints at most its own log lines; commands and a task's text come as one line each.
LINE_BYTES = 16 << 20
TAIL_BYTES = 2000  # of what it said when it died
DESCRIBE_S = 60


class NoMiniSweAgent(Exception):
    """It is not installed where it is looked for."""


class AgentDied(Exception):
    """The process ended without saying how the session did."""


@dataclass(frozen=True)
class Installed:
    """A Python that has it."""

    python: str
    version: str
    digest: str  # of its prompts, and of the code between it and this program


def find_installation() -> Installed:
    """Where the environment's variable says. Raises NoMiniSweAgent."""
    return _described(os.environ.get(VARIABLE, ""))


@cache
def _described(python: str) -> Installed:
    how = f"python -m venv DIR && DIR/bin/pip install mini-swe-agent mcp && export {VARIABLE}=DIR/bin/python"
    if not python:
        raise NoMiniSweAgent(f"--harness mini-swe-agent runs in an environment of its own, and {VARIABLE} names none: {how}")
    try:
        described = subprocess.run([python, "-I", DRIVER, "--describe"], capture_output=True, text=True, timeout=DESCRIBE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoMiniSweAgent(f"{VARIABLE}={python} can't be run ({error}): {how}") from error
    if described.returncode:
        last = (described.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise NoMiniSweAgent(f"{VARIABLE}={python} has no mini-swe-agent ({last}): {how}")
    found = json.loads(described.stdout)
    digest = hashlib.sha256(json.dumps([found, DRIVER.read_text(encoding="utf-8")], sort_keys=True).encode())
    return Installed(python, found["version"], digest.hexdigest()[:16])


Execute = Callable[[str], Awaitable[dict[str, Any]]]


async def play(job: Mapping[str, Any], variables: Mapping[str, str], home: Path, execute: Execute) -> dict[str, Any]:
    """One session to its end: `end`, its word for it, and `message`. Its process is gone when this returns or raises.

    Raises AgentDied, and whatever `execute` raises.
    """
    environment = {**_environment(home), **variables}
    with open(home / "log", "wb") as log:
        child = await asyncio.create_subprocess_exec(
            find_installation().python, "-I", str(DRIVER), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=log, env=environment, cwd=home, limit=LINE_BYTES, start_new_session=True,
        )  # fmt: skip
    assert child.stdin is not None and child.stdout is not None
    try:
        row: Mapping[str, Any] = job
        while True:
            child.stdin.write(json.dumps(row).encode() + b"\n")
            await child.stdin.drain()
            line = await child.stdout.readline()
            if not line:
                raise AgentDied(f"mini-swe-agent ended with status {await child.wait()}: {_tail(home / 'log')}")
            said = json.loads(line)
            if "end" in said:
                return said
            row = await execute(said["command"])
    except (BrokenPipeError, ConnectionResetError) as error:
        raise AgentDied(f"mini-swe-agent ended with status {await child.wait()}: {_tail(home / 'log')}") from error
    finally:
        # Not `child.kill`: that would take the status of one that has just ended from under the event loop.
        if child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


def _environment(home: Path) -> dict[str, str]:
    return {
        **{name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ},
        "HOME": str(home),
        "MSWEA_CONFIGURED": "true",
        "MSWEA_SILENT_STARTUP": "1",
        "MSWEA_GLOBAL_CONFIG_DIR": str(home / "config"),
        "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "1",  # the policy's own client has tried again by then
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it fetches a list of prices
    }


def _tail(log: Path) -> str:
    return log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").strip() or "it said nothing"
