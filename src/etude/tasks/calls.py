"""Runs function calls in a fresh sandbox and brings the *values* back: what is expected never enters the sandbox.

Promise 9. Code under grading can print, exit, patch builtins or read its process' variables; all it can send is values, and to send the
right ones it must know them. Replies leave through a process that it can't reach (`isolated`); code that replies out of turn has none.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any, Sequence

from etude.sandbox.errors import UserError
from etude.sandbox.protocol import Disposable, Machines
from etude.sandbox.spec import ExecResult, SandboxSpec
from etude.tasks.isolated import NOT_PLAIN, plain_value, replies

# Honest calls take microseconds each; a loop or a burst of output is cut here.
TIMEOUT_S = 2.0
MAX_OUTPUT_BYTES = 1 << 16
MEMORY_MB = 256
PIDS = 16


@dataclass(frozen=True)
class Call:
    """One call: `function` of `module` with literal arguments."""

    module: str
    function: str
    args: Sequence[Any]


@dataclass(frozen=True)
class Returned:
    """What came back of one call. `arrived` is False if nothing, or no plain value, did; `ended` is True if the call is known
    to have come to an end, be it with an exception. A call that was never reached has not ended."""

    arrived: bool
    value: Any = None
    ended: bool = False

    def equals(self, want: Any) -> bool:
        """Same value and same types all the way down (True is not 1)."""
        return self.arrived and same(self.value, want)


@dataclass(frozen=True)
class CallResults:
    """Results in the order of the calls, and how the run ended in a word."""

    results: list[Returned]
    ending: str


async def run_calls(files: dict[str, bytes], calls: Sequence[Call], pool: Machines) -> CallResults:
    """One fresh sandbox holding `files`, one warm run. Raises InfraError; all else is an answer.

    A run that was killed for no reason the sandbox knows is made once more: the machine short of memory may have done it, which is no evidence
    against the code (promise 8). Code that kills itself does so again.
    """
    answers, killed = await _fresh_run(files, calls, pool)
    return (await _fresh_run(files, calls, pool))[0] if killed else answers


async def _fresh_run(files: dict[str, bytes], calls: Sequence[Call], pool: Machines) -> tuple[CallResults, bool]:
    """The answers, and whether somebody killed the run."""
    spec = SandboxSpec(files=files, memory_mb=MEMORY_MB, pids=PIDS)
    try:
        sandbox = await pool.create(spec)
    except UserError as error:
        return CallResults([Returned(False)] * len(calls), f"files refused: {error}"), False
    try:
        return await _run(sandbox, calls)
    except UserError as error:
        return CallResults([Returned(False)] * len(calls), type(error).__name__), False
    finally:
        await sandbox.kill()


async def _run(sandbox: Disposable, calls: Sequence[Call]) -> tuple[CallResults, bool]:
    requests = [(call.module, call.function, list(call.args)) for call in calls]
    found = await replies(
        sandbox, [requests], python="python", timeout_s=TIMEOUT_S, max_output_bytes=MAX_OUTPUT_BYTES, warm=True
    )
    result = found.result
    killed = result.signal == signal.SIGKILL and not (result.timed_out or result.oom or result.truncated)
    ending = "replied out of turn" if found.refused else _ending(result)
    return CallResults([_value(text) for text in found.texts], ending), killed


def _value(text: str | None) -> Returned:
    if text is None:
        return Returned(False)
    if text.startswith("!"):
        return Returned(False, ended=True)
    value = plain_value(text)
    # Not a plain value: whatever it is, it is not what was asked for.
    return Returned(False, ended=True) if value is NOT_PLAIN else Returned(True, value, ended=True)


def _ending(result: ExecResult) -> str:
    if result.timed_out:
        return "timed out"
    if result.oom:
        return "out of memory"
    return "too much output" if result.truncated else f"exit {result.rc}"


def same(left: Any, right: Any) -> bool:
    """Equality of plain values that tells True from 1 and a tuple from a list."""
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(value, right[key]) for key, value in left.items())
    return bool(left == right)
