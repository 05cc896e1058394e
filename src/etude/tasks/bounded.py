"""A function over an agent's files in a separate process, with limits on processor time and memory.

Graders read what an agent left: they parse it, walk it, compare it. A small file can make that take hours, gigabytes or the C stack, and
none of these can be cut inside the process that grades everything else. Here the child ends, and the attempt alone is judged by that.

The child costs some 0.3 s, so what is linear in a bounded input (a JSON line, a search) stays in the grader's own process.

A fault of the machine is no fault of the attempt: a child that can't be started, that fails before it calls the function, or that is killed
from outside (as the kernel does where the host has no memory left) is an InfraError.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TypeVar

from etude.sandbox.errors import InfraError

CPU_S = 20  # of one function; the graders' largest real inputs take below one second
MEMORY_BYTES = 1 << 30
SMALL_BYTES, SHORT_LINE_BYTES = 1 << 15, 1 << 10  # at which the slowest parser of output takes below half a second
STARTED = b"started\n"  # the child's first output: what goes wrong from there on is the function's doing
FROM_OUTSIDE = frozenset(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
WALL_S = 300.0  # a child that is given no processor for so long says nothing about the attempt

_CHILD = "import sys; sys.path[:] = {path!r}; from etude.tasks.bounded import child; child()"

T = TypeVar("T")


class LimitReached(Exception):
    """The function took more than it may, or ended its process; says which."""


async def run_bounded(function: Callable[..., T], *args: Any) -> T:
    """What `function`, a module's own, returns or raises. Raises LimitReached too, and InfraError where the machine is at fault."""
    payload = pickle.dumps(function) + pickle.dumps(args)
    try:
        status, out, err = await _ended(payload)
    except TimeoutError as error:
        raise InfraError(f"{_name(function)} was given no processor for {WALL_S:g} s") from error
    except OSError as error:
        raise InfraError(f"no process can be started for {_name(function)}: {error}") from error
    if status in FROM_OUTSIDE or not out.startswith(STARTED):
        raise InfraError(f"the process of {_name(function)} was killed or could not begin: {_end(status, err)}")
    if status:
        raise LimitReached(_limit(function, status, err))
    good, value = pickle.loads(out.removeprefix(STARTED))
    if not good:
        raise value
    return value


async def _ended(payload: bytes) -> tuple[int, bytes, bytes]:
    """Status and output of a child. Raises TimeoutError, OSError."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", _CHILD.format(path=sys.path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    try:
        out, err = await asyncio.wait_for(child.communicate(payload), WALL_S)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return child.returncode or 0, out, err


async def run_bounded_if_large(data: bytes, function: Callable[..., T], *args: Any) -> T:
    """As `bounded`, but in this process where what is read, `data`, is small and its lines are short: then a
    parser that is quadratic in either ends about as soon as a process starts."""
    if len(data) <= SMALL_BYTES and max(map(len, data.splitlines()), default=0) <= SHORT_LINE_BYTES:
        return function(*args)
    return await run_bounded(function, *args)


def _limit(function: Callable[..., Any], status: int, err: bytes) -> str:
    name = _name(function)
    if b"MemoryError" in err:
        return f"{name} takes more than {MEMORY_BYTES >> 20} MiB for these files"
    if status == -24:  # SIGXCPU
        return f"{name} takes more than {CPU_S} s for these files"
    return f"{name} ends its process for these files: {_end(status, err)}"


def _end(status: int, err: bytes) -> str:
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return f"{how} {err.decode('utf-8', 'replace').strip()[-200:]}".strip()


def _name(function: Callable[..., Any]) -> str:
    return f"{function.__module__.removeprefix('etude.')}.{function.__name__}"


def child() -> None:
    """In the separate process."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    function = pickle.load(sys.stdin.buffer)
    limit_s = CPU_S + math.ceil(time.process_time())  # importing the function's module is no part of what it takes
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    sys.stdout.buffer.write(STARTED)
    sys.stdout.buffer.flush()
    args = pickle.load(sys.stdin.buffer)
    try:
        answer: tuple[bool, Any] = (True, function(*args))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - it is raised again in the grader
        answer = (False, _picklable(error))
    sys.stdout.buffer.write(pickle.dumps(answer))


def _picklable(error: Exception) -> Exception:
    """The error if it survives the way to the parent, else its kind and text."""
    error.__traceback__ = error.__cause__ = error.__context__ = None
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - whatever its own pickling raises
        return ValueError(f"{type(error).__name__}: {error}"[:500])
    return error
