"""The verbs of `etude sandbox`, as a person calls them: what lives, what is left, shells with and without a terminal, probes."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from here import Here, document

Verb = Callable[..., subprocess.CompletedProcess[str]]

HOLDER = """
import asyncio, sys
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

async def main():
    pool = await open_pool(SandboxSettings(backend="local"))
    await pool.create(SandboxSpec(labels={"of": sys.argv[1]}))
    print("holding", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def environment(folder: Path) -> dict[str, str]:
    """A ledger of one's own: what other pools of this machine hold is not looked at."""
    return {**os.environ, "XDG_STATE_HOME": str(folder / "state")}


@pytest.fixture
def sandbox(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Verb:
    """`etude sandbox` in this process, with the ledger of the test's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", environment(tmp_path)["XDG_STATE_HOME"])
    return lambda *words: here("sandbox", *words)


def test_what_an_owner_holds_is_listed_and_what_it_left_is_reaped(sandbox: Verb, tmp_path: Path) -> None:
    def listed(*words: str) -> list[dict]:
        return document(sandbox("list", *words, "--json"))["sandboxes"]

    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "one"], env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "holding\n"
    held = listed("--label", "of=one")
    assert [(row["kind"], row["owner_pid"], row["owner_lives"]) for row in held] == [("sandbox", holder.pid, True)]
    assert listed("--label", "of=another") == []
    assert document(sandbox("reap", "--json"))["reaped"] == []
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    left = document(sandbox("reap", "--dry-run", "--json"))["would_reap"]
    assert "sandbox" in {row["kind"] for row in left}
    reaped = document(sandbox("reap", "--json"))["reaped"]
    assert {row["id"] for row in left} == {row["id"] for row in reaped}
    assert listed() == []
    assert document(sandbox("reap", "--json"))["reaped"] == []


def test_a_label_without_a_value_is_refused(sandbox: Verb) -> None:
    done = sandbox("list", "--label", "name")
    assert done.returncode == 1 and "write NAME=VALUE" in done.stderr


def test_a_shell_without_a_terminal_reads_its_commands_and_ends_as_they_do(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "etude", "sandbox", "shell", "--backend", "local"]
    done = subprocess.run(
        argv,
        cwd=tmp_path,
        env=environment(tmp_path),
        input="echo out; echo err >&2; exit 7\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)


def test_a_shell_at_a_terminal_has_one_and_an_interrupt_reaches_the_inside_only(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        argv = [sys.executable, "-c", "from etude.cli.main import main; main()", "sandbox", "shell", "sh"]
        os.execve(sys.executable, argv, {**environment(tmp_path), "PS1": "ready> "})
    try:
        until(terminal, b"$ ")
        # The child says it itself, so that it is in the foreground by then: between two commands a shell's own group is,
        # and a shell that is about to start one waits for it to end before it heeds an interrupt.
        os.write(terminal, b"stty size; sh -c \"test -t 0 && echo 'has' 'one'; exec sleep 50\"\r")
        until(terminal, b"has one")
        os.write(terminal, b"\x03")
        os.write(terminal, b"echo 'still' 'here'; exit 5\r")
        until(terminal, b"still here")
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 5


def until(terminal: int, wanted: bytes) -> None:
    seen, end_s = b"", time.monotonic() + 40
    while wanted not in seen:
        assert time.monotonic() < end_s, seen
        if select.select([terminal], [], [], 0.5)[0]:
            seen += os.read(terminal, 4096)


def test_a_back_end_that_there_is_not_is_refused_with_those_there_are(sandbox: Verb) -> None:
    done = sandbox("probe", "--backend", "lxc")
    assert done.returncode == 1 and "local" in done.stderr and "gvisor" in done.stderr


@pytest.mark.nightly
def test_every_back_end_says_whether_it_works(sandbox: Verb) -> None:
    found = document(sandbox("probe", "--all", "--json"))["backends"]
    assert found["local"]["available"]
    assert all(one["available"] or one["reason"] for one in found.values())
