"""Owners that die: a process of its own enters things in the ledger and is killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_OWNER = """
import sys, time
from pathlib import Path
from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.cleanup.undo import RunCommand, RemoveFile, RemoveFolder, RemoveGroup, KillProcess
journal = CleanupLedger(Path(sys.argv[1])).open("a test's owner")
exec(sys.argv[2])
print("entered", flush=True)
time.sleep(600)
"""

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def owner(folder: Path) -> Iterator[Start]:
    """Starts one that runs a line with `journal`; killed at the latest when the test ends."""

    def start(program: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", _OWNER, str(folder), program], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"entered\n"
        return process

    started: list[subprocess.Popen[bytes]] = []
    yield start
    for process in started:
        process.kill()
        process.wait()
