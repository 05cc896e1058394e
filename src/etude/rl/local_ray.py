"""Ray on this machine for the length of the rl stage: started by us, stopped by us, and swept up if we were killed.

Everything listens on loopback with a token that only this process and its children know; no dashboard, no usage reports, a
small object store (rollouts travel as files, see `store.py`), and a short temp folder, since unix socket paths hold at most
107 bytes. What was started is written down by process id and start time, so that the next start ends what a SIGKILL of this
process left behind (promise 6: run again and it goes on), and nothing else.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

from etude.core.files import replace_file

# Ray refuses less than 75 MiB; requests and completions are a few kB each.
OBJECT_STORE_BYTES = 200 << 20
# Ray gives its raylet 30 s to register, which a machine with a test suite on every core may exceed; the next start then mostly does not.
STARTS = 3
SLOW = "timed out during startup"
# Its node and its head: these are never restarted, and calls to actors then never return.
NEEDED = ("raylet", "gcs_server")
# How often an OpenMP thread of torch looks for work before it sleeps: for microseconds instead of 3 ms. Trainer and engine share the cores, and one
# that waits keeps the other from computing (docs/log/smollm2.md: decoding at a fifth of its speed). Alone it costs a sixth of decoding, so only here.
SHORT_SPIN = "1000"


class SlowMachine(Exception):
    """Ray could not be started in time."""


class LocalRay:
    """A context: `with LocalRay(folder / "ray.json"): ...`. Actors of ours may live only inside."""

    def __init__(self, record: Path) -> None:
        self.record = record
        self._others: dict[
            str, int
        ] = {}  # children of this process that were there before and are none of our business
        self._needed: dict[str, dict[str, int]] = {}  # by name: start time by process id

    def __enter__(self) -> LocalRay:
        for left in reversed(range(STARTS)):
            try:
                return self._start()
            except Exception as error:  # Ray raises no type of its own for it
                if SLOW not in str(error):
                    raise
                if not left:
                    raise SlowMachine(
                        f"Ray did not come up in {STARTS} starts of 30 s each: this machine is too busy now. Run again later; it goes on"
                    ) from error
        raise AssertionError("STARTS is at least 1")

    def _start(self) -> LocalRay:
        sweep(self.record)
        self._others = _processes_below(os.getpid())
        temp = tempfile.mkdtemp(prefix="er-")
        self.record.parent.mkdir(parents=True, exist_ok=True)
        self._write(temp)
        # Ray reads its token once in the life of a process, so a second start in the same one has to reuse it.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        os.environ |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the switch that makes Ray stay on loopback, on Linux too
            "RAY_AUTH_MODE": "token",
            "RAY_worker_niceness": "0",  # Ray's 15 lets sandboxes starve the trainer, and the rollouts then wait for its weights
        }
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", SHORT_SPIN)  # read when an actor loads torch
        import ray

        try:
            ray.init(
                num_cpus=8,  # placement is ours, not a matter of Ray's counting
                include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES,
                _temp_dir=temp,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
        except BaseException:
            self.__exit__()
            raise
        self._write(temp)
        self.look_for_needed()
        return self

    def look_for_needed(self) -> None:
        """From now on `lost` tells of those of `NEEDED` that run."""
        ours = self._ours()
        self._needed = {name: ids for name in NEEDED if (ids := _named(name, ours))}

    def lost(self) -> str:
        """The name of Ray's own process that has ended; empty while all live."""
        return next((name for name, ids in self._needed.items() if not _alive(ids)), "")

    def remember(self) -> None:
        """Write down the processes that have come up since (actors)."""
        self._write(json.loads(self.record.read_text())["temp"])

    def __exit__(self, *error: Any) -> None:
        import ray

        self.remember()
        ray.shutdown()
        sweep(self.record)

    def _write(self, temp: str) -> None:
        processes = self._ours()
        replace_file(self.record, json.dumps({"temp": temp, "driver": os.getpid(), "processes": processes}))

    def _ours(self) -> dict[str, int]:
        found = _processes_below(os.getpid())
        return {pid: started for pid, started in found.items() if self._others.get(pid) != started}


def sweep(record: Path) -> list[int]:
    """End the recorded processes that still run, remove the temp folder and the record; returns the ended ids."""
    if not record.exists():
        return []
    try:
        noted = json.loads(record.read_text())
    except (json.JSONDecodeError, RecursionError):  # torn by a kill before anything was started
        record.unlink()
        return []
    left = [int(pid) for pid, started in noted["processes"].items() if _start_time(int(pid)) == started]
    for pid in left:  # nothing to wait for: whatever they write goes to a temporary file and is renamed
        _signal(pid, signal.SIGKILL)
    shutil.rmtree(noted["temp"], ignore_errors=True)
    record.unlink()
    return left


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it ended by itself meanwhile, as intended


def _start_time(pid: int) -> int | None:
    """Clock ticks after boot at which the process started; with the id it names a process for good. None: gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _named(name: str, processes: dict[str, int]) -> dict[str, int]:
    """Those whose program is called so."""
    return {pid: started for pid, started in processes.items() if _program(pid) == name}


def _program(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _alive(processes: dict[str, int]) -> bool:
    return any(_start_time(int(pid)) == started for pid, started in processes.items())


def _processes_below(root: int) -> dict[str, int]:
    """Start time by id of every living process below `root`."""
    return {str(pid): started for pid in _descendants(root) if (started := _start_time(pid)) is not None}


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found
