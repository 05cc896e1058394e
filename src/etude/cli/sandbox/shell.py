"""`etude sandbox shell`: a person at the keyboard of a fresh sandbox; it is gone when the shell ends."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import tty
from typing import TYPE_CHECKING, Annotated

import typer

from etude.cli.answer import Answer
from etude.cli.option import Json
from etude.cli.sandbox import flags
from etude.core.events.stopping import run_async

if TYPE_CHECKING:
    from etude.sandbox.protocol import Process
    from etude.sandbox.spec import ExecResult, SandboxSpec, TerminalSize

_KEYS_BYTES = 4096


def shell(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND]...", help="Command to run. Default: bash, or sh if there is no bash."),
    ] = None,
    backend: flags.Backend = "auto",
    folder: flags.Folder = None,
    image: flags.Image = "",
    memory_mb: flags.Memory = 512,
    pids: flags.Pids = 64,
    disk_mb: flags.Disk = 64,
    cpus: flags.Cpus = None,
    allow: flags.Allow = None,
    root: flags.Root = False,
    json: Json = False,
) -> Answer:
    """A shell in a fresh sandbox. At a terminal it has one too; else it reads commands from stdin."""
    words = command or ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash || exec sh"]
    wanted = flags.spec(folder, image, memory_mb, pids, disk_mb, cpus, allow, root)
    done = run_async(_serve(backend, wanted, words))
    return Answer({"rc": done.rc, "signal": done.signal, "duration_s": done.duration_s}, "", done.rc)


async def _serve(backend: str, wanted: SandboxSpec, words: list[str]) -> ExecResult:
    from etude.sandbox.pool import open_pool

    seen = sys.stdin.isatty() and sys.stdout.isatty()
    pool = await open_pool(flags.settings(backend))
    try:
        sandbox = await pool.create(wanted)
        size = _size() if seen else None
        environment = {"TERM": os.environ.get("TERM", "dumb")} if seen else {}
        process = await sandbox.exec(words, stdin=None, tty=size, env=environment)
        return await (_at_a_terminal(process) if seen else _piped(process))
    finally:
        await pool.close()


def _size() -> TerminalSize:
    from etude.sandbox.spec import TerminalSize

    found = shutil.get_terminal_size()
    return TerminalSize(found.lines, found.columns)


async def _at_a_terminal(process: Process) -> ExecResult:
    """Keys go in as they are typed, also ^C; the terminal is itself again afterwards, whatever happens."""
    before = termios.tcgetattr(0)
    loop = asyncio.get_running_loop()
    changed: set[asyncio.Task[None]] = set()

    def resized() -> None:
        task = loop.create_task(process.resize(_size()))
        changed.add(task)
        task.add_done_callback(changed.discard)

    loop.add_signal_handler(signal.SIGWINCH, resized)
    tty.setraw(0)
    try:
        return await _piped(process)
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        loop.remove_signal_handler(signal.SIGWINCH)


async def _piped(process: Process) -> ExecResult:
    keys = asyncio.create_task(_forward(process))
    try:
        async for chunk in process.stream():
            _put(1 if chunk.stream == "stdout" else 2, chunk.data)
        return await process.wait()
    finally:
        keys.cancel()


async def _forward(process: Process) -> None:
    from etude.sandbox.errors import SandboxError

    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()

    def ready() -> None:
        data = os.read(0, _KEYS_BYTES)
        queue.put_nowait(data)
        if not data:
            loop.remove_reader(0)

    try:
        loop.add_reader(0, ready)
    except PermissionError:  # a regular file is always readable, and epoll does not take it
        while data := await asyncio.to_thread(os.read, 0, _KEYS_BYTES):
            queue.put_nowait(data)
        queue.put_nowait(b"")
    try:
        while data := await queue.get():
            await process.write(data)
        await process.close_stdin()
    except SandboxError:
        return  # the shell ended while somebody typed
    finally:
        loop.remove_reader(0)


def _put(number: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
