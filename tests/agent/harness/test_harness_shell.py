"""Shell and jobs, in the person's folder and in a sandbox: no command costs the session, and none outlives it."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.tools.tool import ToolContext, ToolError
from etude.agent.workspace.jobs import Jobs
from etude.agent.workspace.local_folder import LocalFolder
from etude.agent.workspace.shell_state import ShellState
from etude.agent.workspace.workspace import Workspace
from etude.sandbox.errors import Unsupported
from etude.sandbox.pool import open_pool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import SandboxSpec

SETTINGS = HarnessSettings.full(preset="search_replace", tool_timeout_s=20, max_command_s=30)
# Seconds that distinguish this run's sleepers from those of another run of the tests on this machine.
LONG = 900_000 + os.getpid()
# Children in sessions of their own that ignore SIGTERM, one of them an orphan.
STUBBORN = f"trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep {LONG}' &); setsid sleep {LONG} & sleep {LONG}"
COUNT = f"grep -lsz '^sleep$' /proc/[0-9]*/cmdline | while read -r f; do {{ tr '\\0' ' ' < $f; }} 2>&-; echo; done | grep -c 'sleep {LONG}' || true"


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
    assert await shell(there, "pwd | sed 's|.*/||'; echo $A") == "d\n1"


async def test_input_is_empty_and_both_streams_come_in_order(there: ToolContext) -> None:
    assert await shell(there, "cat; echo a; echo b >&2; echo c") == "a\nb\nc"


async def test_a_time_out_kills_what_ignores_it_and_the_session_goes_on(there: ToolContext) -> None:
    await shell(there, "export KEPT=yes")
    start = time.monotonic()
    answer = await shell(there, f"echo begun; {STUBBORN}", timeout_s=1)
    assert answer == "begun\nkilled after 1 s; long work runs with is_background" and time.monotonic() - start < 8
    assert await shell(there, f"echo $KEPT; {COUNT}") == "yes\n0"


async def test_a_job_runs_next_to_commands_and_reports_what_is_new(there: ToolContext) -> None:
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
    one = await jobs.start(f"sleep {LONG}", await state.background(there.workspace, f"sleep {LONG}"))
    await shell(
        there,
        f"kill -9 {one.pid}; sleep 0.2; for f in $(grep -lsz '^{LONG}$' /proc/[0-9]*/cmdline); do kill -9 $(echo $f | tr -dc 0-9); done",
    )
    assert (await jobs.look(one, 5)).status == "killed"


@pytest.fixture(params=["/bin/bash", "/bin/sh"])
async def either(request: Any, tmp_path: Path) -> AsyncIterator[ToolContext]:
    """The shell of a folder over bash, and over the plain shell that a machine without bash has."""
    machine = LocalFolder(tmp_path)
    there = ToolContext(Workspace(machine), SETTINGS, (), names=preset_of(SETTINGS).names)
    await shell(there, "mkdir d")
    if (await machine.run([request.param, "-c", ":"])).rc != 0:
        pytest.skip(f"{request.param} is not on this machine")
    there.shell._shell = request.param
    yield there
    await machine.kill()


@pytest.mark.parametrize("number", [2, 3, 5, 9])
async def test_no_descriptor_that_a_command_takes_gets_the_shells_memory(either: ToolContext, number: int) -> None:
    assert await shell(either, f"exec {number}>lock; cd d; export A=1; wc -c < ../lock") == "0\nnow in d"
    assert await shell(either, "wc -c < ../lock; echo $A") == "0\n1"


async def test_bash_may_take_any_descriptor(there: ToolContext) -> None:
    said = await shell(there, 'for n in 10 77 200; do eval "exec $n>lock$n"; done; exec {free}>lock; mkdir d; cd d')
    assert said == "now in d"
    assert await shell(there, "cat ../lock*; pwd | sed 's|.*/||'") == "d"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("trap 'echo bye $?' EXIT; cd d; exit 3", "bye 3\nnow in d\nexit 3"),
        ("trap 'echo bye' 0; cd d", "bye\nnow in d"),
        ("trap -- 'echo bye' INT EXIT; cd d", "bye\nnow in d"),
        ("trap - EXIT; cd d; exit 0", "now in d"),
        ("trap '' EXIT; cd d", "now in d"),
        ("set -eu; trap 'echo bye $?' EXIT; cd d; false; echo on", "bye 1\nnow in d\nexit 1"),
        ("trap 'echo bye; exit 7' EXIT; cd d", "bye\nnow in d\nexit 7"),
        ("set -C; cd d; (trap 'echo sub' EXIT; cd /)", "sub\nnow in d"),
        ("cd d; PATH=/nowhere", "now in d"),
        ("cd d; exec >/dev/null 2>&1; echo on", "now in d"),
    ],
)
async def test_the_shells_memory_survives_what_a_command_sets_up(
    either: ToolContext, command: str, answer: str
) -> None:
    assert await shell(either, command) == answer
    assert (await shell(either, "PATH=/usr/bin:/bin; pwd | sed 's|.*/||'")).startswith("d")


async def test_a_command_sees_no_arguments_and_no_variables_of_ours(either: ToolContext) -> None:
    assert await shell(either, 'echo "[$1][$2][$#]"; [ -z "${1+set}" ] && echo unset') == "[][][0]\nunset"
    assert await shell(either, "set -a; X=5") == "ok, no output"
    assert await shell(either, "echo $X; env | grep -c etude_ || true") == "5\n0"


@pytest.mark.parametrize("background", [False, True])
async def test_a_command_line_longer_than_the_kernel_takes_runs(either: ToolContext, background: bool) -> None:
    command = f"cat <<'EOF' > big.txt\n{'x' * 140_000}\nEOF\nwc -c < big.txt; cat; echo [$1]"
    said = await shell(either, command, is_background=background)
    said = await job(either, "terminal_output", 1, wait_s=10) if background else said
    assert said.startswith("140001\n[]")


@pytest.mark.parametrize(
    "command",
    [
        "git commit --allow-empty",
        "git commit --amend --allow-empty",
        "git rebase -i --root",
        "git tag -a v1",
        "$EDITOR notes.txt",
        "sh -c '$VISUAL x'",
    ],
)
async def test_a_command_that_wants_an_editor_explains_and_ends(there: ToolContext, command: str) -> None:
    setup = (
        "git init -q . && git config user.email a@b && git config user.name n && git commit -q --allow-empty -m first"
    )
    if "git" in command and (await shell(there, setup)).startswith("bash: "):
        pytest.skip("git is not on this machine")
    said = await shell(there, command, timeout_s=15)
    assert "editor" in said and "option" in said or "GIT_SEQUENCE_EDITOR" in said
    assert "killed after" not in said and "exit " in said


async def test_a_person_may_still_name_an_editor(there: ToolContext) -> None:
    assert await shell(there, "export EDITOR=ed; unset GIT_EDITOR") == "ok, no output"
    assert await shell(there, "echo $EDITOR ${GIT_EDITOR-none}") == "ed none"


SERVE = """import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    client, _ = server.accept()
    print("request", "x" * 70000, file=sys.stderr, flush=True)
    print("served", flush=True)
    client.sendall(b"hello")
    client.close()
"""
ASK = """import socket, sys, time
for _ in range(200):
    try:
        client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        break
    except OSError:
        time.sleep(0.02)
print(client.recv(9).decode())
"""


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "start", ["{} &", "nohup {} &", "({} &)", "setsid {} &", "{} > log 2>&1 &", "setsid nohup {} </dev/null & disown"]
)
async def test_a_server_that_a_command_leaves_running_keeps_answering(there: ToolContext, start: str) -> None:
    await there.workspace.write("serve.py", SERVE)
    await there.workspace.write("ask.py", ASK)
    port = 20_000 + (os.getpid() * 7 + zlib.crc32(start.encode())) % 30_000
    said = await shell(there, start.format(f"python3 serve.py {port}"))
    assert ("still runs; its further output is in $OUTPUTS/background-1.txt" in said) == ("log" not in start), said
    for _ in range(3):
        assert await shell(there, f"python3 ask.py {port}") == "hello"
    if "log" not in start:
        assert await shell(there, "head -1 $OUTPUTS/background-1.txt; grep -c '^served' $OUTPUTS/background-1.txt") == (
            "[output of a process that its command left running]\n3"
        )


async def test_what_runs_on_writes_a_bounded_file_and_ends_with_the_session(there: ToolContext) -> None:
    said = await shell(
        there, f"(while :; do head -c 100000 /dev/zero | tr '\\0' 'x'; sleep 0.01; done) & sleep {LONG} &"
    )
    assert "background-1.txt" in said
    while (size := int(await shell(there, "stat -c %s $OUTPUTS/background-1.txt"))) < 1 << 20:
        pass
    assert size == 1 << 20
    assert await shell(there, "sleep 0.2; stat -c %s $OUTPUTS/background-1.txt") == str(1 << 20)
    assert await shell(there, COUNT) == "1"


async def test_no_process_of_a_folder_outlives_its_session(tmp_path: Path) -> None:
    machine = LocalFolder(tmp_path)
    there = ToolContext(Workspace(machine), SETTINGS, (), names=preset_of(SETTINGS).names)
    await shell(there, f"sleep {LONG} & (nohup sleep {LONG} &) ; setsid sleep {LONG} &")
    assert await shell(there, COUNT) == "3"
    await machine.kill()
    after = LocalFolder(tmp_path)
    assert (await after.run(COUNT)).out.strip() == b"0"
    await after.kill()


@pytest.mark.parametrize(
    "change",
    [
        "mkdir -p outputs; export OUTPUTS=$PWD/outputs",
        "unset OUTPUTS",
        "export OUTPUTS=",
        "export TMPDIR=$PWD; unset OUTPUTS",
        "unset TMPDIR HOME",
    ],
)
async def test_no_variable_that_a_command_changes_moves_the_shells_memory(there: ToolContext, change: str) -> None:
    await shell(there, "mkdir d")
    given = await shell(there, 'echo "$OUTPUTS"')
    await shell(there, f"{change}; export A=1; cd d")
    assert await shell(there, "pwd | sed 's|.*/||'; echo $A; cd ..") == "d\n1\nnow in ."
    assert await shell(there, 'echo "$OUTPUTS"; find . -name .shell') == given
    await shell(there, f"{change}; echo said by a job", is_background=True)
    await shell(there, "echo said by a job", is_background=True)
    for number in (1, 2):
        assert (await job(there, "terminal_output", number, wait_s=10)).startswith("said by a job")


@pytest.mark.parametrize("variables", [{"OUTPUTS": "/tmp/elsewhere"}, {"TMPDIR": "/work", "HOME": "/work"}])
async def test_a_machine_whose_image_sets_the_outputs_variable_keeps_the_shells_memory(
    variables: dict[str, str],
) -> None:
    try:
        pool = await open_pool(SandboxSettings())
    except Unsupported as missing:
        pytest.skip(f"no sandbox works here: {missing}")
    try:
        sandbox = await pool.create(SandboxSpec(env=variables))
        there = ToolContext(Workspace(sandbox), SETTINGS, (), names=preset_of(SETTINGS).names)
        assert await shell(there, "mkdir d; cd d; export A=1") == "now in d"
        assert await shell(there, "echo $A") == "1"
    finally:
        await pool.close()
