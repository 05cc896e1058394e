"""Shell and jobs, in the person's folder and in a sandbox: no command costs the session, and none outlives it."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from etude.harness.presets.preset import preset_of
from etude.harness.settings import HarnessSettings
from etude.harness.tools.tool import ToolContext, ToolError
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec
from etude.workspace.jobs import Jobs
from etude.workspace.local_folder import LocalFolder
from etude.workspace.shell_state import ShellState
from etude.workspace.workspace import Workspace

SETTINGS = HarnessSettings.full(preset="search_replace", tool_timeout_s=20, max_command_s=30)
# Seconds by which this run's sleepers are told from those of another run of the tests on this machine.
LONG = 900_000 + os.getpid()
# Children in sessions of their own that ignore SIGTERM, one of them an orphan.
STUBBORN = f"trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep {LONG}' &); setsid sleep {LONG} & sleep {LONG}"
COUNT = f"grep -lsz '^sleep$' /proc/[0-9]*/cmdline | while read -r f; do tr '\\0' ' ' < $f; echo; done | grep -c 'sleep {LONG}' || true"


@pytest.fixture(params=["folder", "sandbox"])
async def there(request: Any, tmp_path: Path) -> AsyncIterator[ToolContext]:
    if request.param == "folder":
        machine = LocalFolder(tmp_path)
        yield ToolContext(Workspace(machine), SETTINGS, (), names=preset_of(SETTINGS).names)
        await machine.kill()
        return
    try:
        pool = await open_pool(SandboxSettings())
    except Unsupported as missing:
        pytest.skip(f"no sandbox works here: {missing}")
    sandbox = await pool.create(SandboxSpec())
    yield ToolContext(Workspace(sandbox), SETTINGS, (), names=preset_of(SETTINGS).names)
    await pool.close()


async def shell(there: ToolContext, command: str, **more: Any) -> str:
    return (await preset_of(SETTINGS).tools["run_terminal_cmd"].run({"command": command, **more}, there)).text


async def job(there: ToolContext, name: str, number: int, **more: Any) -> str:
    return (await preset_of(SETTINGS).tools[name].run({"job": number, **more}, there)).text


async def test_folder_and_variables_stay(there: ToolContext) -> None:
    assert await shell(there, "mkdir -p 'a b'/c && cd 'a b' && export X='1\n2' Y=é") == "now in a b"
    assert await shell(there, 'cd c; echo "$X$Y"') == "1\n2é\nnow in a b/c"
    assert (await shell(there, "cd - >/dev/null; unset X")) == "now in a b"
    assert await shell(there, 'echo "[$X][$Y]"') == "[][é]"
    await shell(there, "cd c && rm -r ../c")
    gone = await shell(there, "echo on")
    assert gone.startswith("the folder ") and gone.endswith("\non\nnow in .")
    assert (await shell(there, "exit 3")).endswith("exit 3")


async def test_a_variable_of_the_machine_can_be_unset(there: ToolContext) -> None:
    assert await shell(there, "echo ${LANG-none} ${HOME-none}; unset HOME") != "none none"
    assert await shell(there, "echo ${HOME-none}") == "none"


async def test_a_command_that_replaces_or_loses_its_shell_costs_nothing(there: ToolContext) -> None:
    await shell(there, "mkdir d; cd d; export A=1")
    assert await shell(there, "exec echo gone") == "gone"
    assert await shell(there, "kill -9 $$") == "exit 137"
    assert await shell(there, "trap - EXIT; cd /") == "ok, no output"
    assert await shell(there, "pwd | sed 's|.*/||'; echo $A") == "d\n1"


async def test_input_is_empty_and_both_streams_come_in_order(there: ToolContext) -> None:
    assert await shell(there, "cat; echo a; echo b >&2; echo c") == "a\nb\nc"


async def test_a_time_out_kills_what_ignores_it_and_the_session_goes_on(there: ToolContext) -> None:
    await shell(there, "export KEPT=yes")
    start = time.monotonic()
    answer = await shell(there, f"echo begun; {STUBBORN}", timeout_s=1)
    assert answer == "begun\nkilled after 1 s; long work runs with is_background" and time.monotonic() - start < 8
    assert await shell(there, f"echo $KEPT; {COUNT}") == "yes\n0"


async def test_a_job_runs_beside_commands_and_reports_what_is_new(there: ToolContext) -> None:
    await shell(there, "mkdir d; cd d; export WORD=hello")
    started = await shell(
        there,
        "echo $WORD from $(basename $PWD); until [ -e go ]; do sleep 0.05; done; echo went; exit 5",
        is_background=True,
    )
    assert started == "job 1 runs; see terminal_output(job=1)"
    assert await job(there, "terminal_output", 1, wait_s=2) == "hello from d\njob 1: running"
    assert await shell(there, "sleep 9", timeout_s=1) == "killed after 1 s; long work runs with is_background"
    assert await job(there, "terminal_output", 1) == "job 1: running"  # the time-out of another command spared it
    await shell(there, "touch go")
    assert await job(there, "terminal_output", 1, wait_s=10) == "went\njob 1: exit 5"
    assert await job(there, "terminal_output", 1, wait_s=10) == "job 1: exit 5"


async def test_a_killed_job_takes_its_children_along(there: ToolContext) -> None:
    await shell(there, STUBBORN, is_background=True)
    while await shell(there, COUNT) != "3":
        pass
    assert await job(there, "kill_terminal", 1) == "job 1: killed"
    assert await shell(there, COUNT) == "0"
    assert await job(there, "kill_terminal", 1) == "job 1: killed"
    with pytest.raises(ToolError, match="no job 4; there are: 1"):
        await job(there, "terminal_output", 4)


async def test_the_end_of_a_session_ends_its_jobs(there: ToolContext) -> None:
    await shell(there, f"sleep {LONG}", is_background=True)
    await there.close()
    assert await shell(there, COUNT) == "0"


async def test_a_job_that_is_lost_is_not_said_to_run(there: ToolContext) -> None:
    jobs, state = Jobs(there.workspace), ShellState()
    one = await jobs.start(f"sleep {LONG}", *await state.background(there.workspace, f"sleep {LONG}"))
    await shell(
        there,
        f"kill -9 {one.pid}; sleep 0.2; for f in $(grep -lsz '^{LONG}$' /proc/[0-9]*/cmdline); do kill -9 $(echo $f | tr -dc 0-9); done",
    )
    assert (await jobs.look(one, 5)).status == "killed"
