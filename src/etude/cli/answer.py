"""What a verb gives back, and where it goes: text for a person, or with --json exactly one document on stdout.

Promise: with --json everything else goes to stderr, also what child processes and native libraries print, because
the file descriptor itself is turned over until the document is written. Errors are documents too; none of them holds a key.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from etude.events.finite import dumps
from etude.redact.keys import masked

# 128 + the signal's number, what shells report.
INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM came: leave through every `finally`, so that sandboxes and Ray's processes are ended."""


@dataclass(frozen=True)
class Answer:
    """A verb's result. `code` is the exit status: a verb may answer well and still have found something wrong."""

    document: dict[str, Any]
    text: str
    code: int = 0


def give(verb: Callable[[], Any], *, as_json: bool) -> int:
    """Runs a verb and writes its answer or its error; returns the exit status."""
    with _stdout_into_stderr() if as_json else contextlib.nullcontext():
        document, text, code = _outcome(verb)
    if "error" in document:
        print(text, file=sys.stderr, flush=True)
    elif text and not as_json:
        print(text, flush=True)
    if as_json:
        print(dumps(document), flush=True)
    return code


def _outcome(verb: Callable[[], Any]) -> tuple[dict[str, Any], str, int]:
    try:
        answer = verb()
    except KeyboardInterrupt as stop:
        code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        return _error("Interrupted", "stopped; run the same command again and it goes on", code)
    except Exception as error:  # noqa: BLE001 - the outermost door: whatever it is, it is told and the status says so
        # Typer carries its own copy of click, whose usage errors have no public name; these two mark them.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            return _error("UsageError", error.format_message(), error.exit_code)  # type: ignore[attr-defined]
        expected = type(error).__module__.startswith("etude.") or isinstance(error, OSError)
        if not expected:  # a fault of ours: the person who reports it needs the place
            print(masked(traceback.format_exc()), end="", file=sys.stderr)
        return _error(type(error).__name__, str(error) or type(error).__name__, 1)
    if isinstance(answer, Answer):
        return answer.document, answer.text, answer.code
    return {}, "", answer if isinstance(answer, int) else 0  # --help and --version have printed by themselves


def _error(kind: str, message: str, code: int) -> tuple[dict[str, Any], str, int]:
    message = masked(message)
    return {"error": {"type": kind, "message": message}}, f"error: {message}", code


@contextlib.contextmanager
def _stdout_into_stderr() -> Iterator[None]:
    """Descriptor 1 is stderr for a while, also for child processes and native code."""
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)
