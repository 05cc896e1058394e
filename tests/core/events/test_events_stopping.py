"""A signal stops a command once, whenever it comes: no handler takes a lock, and what is open is closed before the command ends."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from etude.cli.answer import give
from etude.core.events import stopping
from etude.core.events.stopping import SIGNALS, StopFlag, Stopped, name_of, run_async

SOURCES = Path(stopping.__file__).parents[1]
# A thousand signals from a thread while the main thread waits, works and is interrupted in either.
STORM = """
import os, random, signal, sys, threading, time
from etude.core.events.stopping import StopFlag

dice = random.Random(int(sys.argv[1]))
with StopFlag() as stop:
    def storm():
        for _ in range(1000):
            os.kill(os.getpid(), dice.choice((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
            if dice.random() < 0.2:
                time.sleep(dice.random() / 5000)
    sender = threading.Thread(target=storm)
    event = threading.Event()
    waits = 0
    sender.start()
    while sender.is_alive():
        stop.number = 0
        stop.wait(0.0005)
        event.wait(0.0002)
        waits += 1
    sender.join()
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.wait(5) and stop.is_set()
print("whole", waits > 0)
"""


@pytest.mark.parametrize("seed", [0, 1])
def test_a_thousand_signals_at_random_moments_leave_no_lock_held(seed: int) -> None:
    done = subprocess.run([sys.executable, "-c", STORM, str(seed)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "whole True\n"), done.stderr


def test_a_flag_wakes_a_wait_at_once_and_gives_handlers_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, *SIGNALS)]
    with StopFlag() as stop:
        assert not stop.is_set() and not stop.wait(0.01)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGHUP)).start()
        assert stop.wait(30) and stop.number == signal.SIGHUP
        assert stop.wait()  # stays set
    assert [signal.getsignal(number) for number in (signal.SIGINT, *SIGNALS)] == before


def _in_a_process(
    body: str, number: int | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs a program that says `ready`, and sends it a signal then."""
    words = [*prefix, sys.executable, "-c", textwrap.dedent(body)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if number is not None:
            child.send_signal(number)
        out, err = child.communicate(timeout=30)
    return subprocess.CompletedProcess(words, child.returncode, out, err)


ASYNC = """
import asyncio, sys
from etude.cli.answer import give
from etude.core.events.stopping import raise_when_stopped, run_async

async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        print("closed", flush=True)

raise_when_stopped()
sys.exit(give(lambda: run_async(work()), as_json=False, words=["bench", "run", "my suite", "--json"]))
"""
SYNC = """
import sys, time
from etude.cli.answer import give
from etude.core.events.stopping import raise_when_stopped

def work():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("closed", flush=True)

raise_when_stopped()
sys.exit(give(work, as_json=False, words=["doctor"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("body", [ASYNC, SYNC])
def test_each_signal_closes_what_is_open_and_has_its_own_status(body: str, number: int) -> None:
    done = _in_a_process(body, number)
    assert (done.returncode, done.stdout) == (128 + number, "closed\n")
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    kept = "; what is finished is kept; go on with: etude bench run 'my suite' --json" if body == ASYNC else ""
    assert done.stderr == f"error: stopped by {name}{kept}\n"


def test_what_is_ignored_stays_ignored_as_nohup_wants_it() -> None:
    body = """
    import os, signal, time
    from etude.core.events.stopping import raise_when_stopped, run_async, StopFlag
    raise_when_stopped()
    with StopFlag() as stop:
        print("ready", flush=True)
        time.sleep(0.2)
        assert not stop.is_set()
    import asyncio
    async def work():
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        return "whole"
    print(run_async(work()))
    """
    done = _in_a_process(body, signal.SIGHUP, ("nohup",))
    assert (done.returncode, done.stdout) == (0, "whole\n"), done.stderr


def test_the_handler_from_before_has_its_turn_once_the_work_is_closed() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(60)

    try:
        with pytest.raises(Stopped) as stopped:
            run_async(work())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM] and name_of(stopped.value) == "SIGTERM"


INNER = """
import asyncio, signal, sys
from etude.cli.answer import give
from etude.core.events.stopping import SIGNALS, handled_in_loop, raise_when_stopped, run_async

heard = []

async def work():
    try:
        with handled_in_loop((signal.SIGINT, *SIGNALS), heard.append):
            for number in (signal.SIGINT, *SIGNALS):
                signal.raise_signal(number)
            await asyncio.sleep(0.01)
        assert heard == [signal.SIGINT, *SIGNALS], heard
        print("ready", flush=True)
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        print("closed", flush=True)

raise_when_stopped()
sys.exit(give(lambda: run_async(work()), as_json=False, words=["agent"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_that_a_part_of_the_work_handled_close_the_rest_of_it(number: int) -> None:
    done = _in_a_process(INNER, number)
    assert (done.returncode, done.stdout) == (128 + number, "closed\n"), done.stderr


async def test_a_loop_handles_no_signal_that_is_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        heard: list[int] = []
        with stopping.handled_in_loop(SIGNALS, heard.append):
            signal.raise_signal(signal.SIGHUP)
            await asyncio.sleep(0)
        assert heard == [] and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_handler_is_made_by_a_call_whose_end_kills() -> None:
    """`remove_signal_handler` sets the default action; for SIGWINCH that is to do nothing."""
    calls = [
        f"{path}: {ast.unparse(node)}"
        for path in SOURCES.rglob("*.py")
        if "_signal_handler" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("add_signal_handler", "remove_signal_handler"))
    ]
    assert [call for call in calls if "SIGWINCH" not in call] == []


def test_other_threads_run_their_work_without_handlers() -> None:
    found: list[int] = []

    async def work() -> int:
        return 7

    thread = threading.Thread(target=lambda: found.append(run_async(work())))
    thread.start()
    thread.join()
    assert found == [7]


def test_notes_say_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        error = KeyboardInterrupt()
        error.add_note("runs/x keeps all that was made")
        raise error

    assert give(work, as_json=False, words=["run", "recipes/ci.toml"]) == 130
    assert capsys.readouterr().err == (
        "error: stopped by Ctrl-C; runs/x keeps all that was made; go on with: etude run recipes/ci.toml\n"
    )


def test_signal_handlers_are_made_in_one_place() -> None:
    """Elsewhere a handler is the event loop's own, a default or SIG_IGN, or runs inside of a sandbox."""
    found: list[str] = []
    for path in SOURCES.rglob("*.py"):
        if path.parent.name == "inside" or path == Path(stopping.__file__):
            continue
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "signal.signal" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal":
                handler = ast.unparse(node.args[1])
                if handler not in ("signal.SIG_IGN", "signal.SIG_DFL", "signal.default_int_handler"):
                    found.append(f"{path}:{node.lineno} {handler}")
    assert found == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_verb_that_serves_says_what_stopped_it(tmp_path: Path, number: int) -> None:
    """Through typer, which answers a KeyboardInterrupt with a bare status."""
    words = [
        sys.executable,
        "-m",
        "etude.cli.main",
        "capture",
        "serve",
        "--model",
        "http://127.0.0.1:9/v1",
        "--port",
        "0",
    ]
    env = {**os.environ, "OPENAI_API_KEY": "none"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=env) as child:
        assert child.stderr is not None
        while "curl" not in (line := child.stderr.readline()):
            assert line, "it ended before it served"
        child.send_signal(number)
        err = child.stderr.read()
    name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
    assert (child.returncode, err.strip().splitlines()[-1]) == (128 + number, f"error: stopped by {name}")
