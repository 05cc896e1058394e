"""What a verb gives back, and where it goes: text for a person, or with --json exactly one document on stdout.

Promise: with --json everything else goes to stderr, also what child processes and native libraries print, because
the file descriptor itself is turned over until the document is written. Errors are documents too; none of them holds a key.
"""

from __future__ import annotations

import contextlib
import errno
import opcode
import os
import re
import select
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from etude.cli.extras import EXTRAS, missing_package
from etude.core.events.finite import dumps
from etude.core.events.stopping import name_of, status_of
from etude.core.redact.keys import mask_keys
from etude.core.spelling import similar

_RAISE = opcode.opmap["RAISE_VARARGS"]
BROKEN_PIPE = 141  # 128 and the signal's number, as shells report
# Verbs that keep what they have done: the same command goes on.
RESUMABLE = (
    "run", "pretrain", "sft", "rl", "ablate", "bench run", "bench make", "bench refresh", "tasks make", "tasks import", "tasks install",
    "tasks check", "tasks probe", "session collect", "sessions collect", "corpus build", "base compare", "weights relay", "model fetch",
)  # fmt: skip


class Interrupted(Exception):
    """A KeyboardInterrupt on its way through a library that would swallow it."""

    def __init__(self, stop: KeyboardInterrupt) -> None:
        super().__init__(stop)
        self.stop = stop


@dataclass(frozen=True)
class Answer:
    """A verb's result. `code` is the exit status: a verb may answer well and still have found something wrong."""

    document: dict[str, Any]
    text: str
    code: int = 0


def give(verb: Callable[[], Any], *, as_json: bool, words: Sequence[str] = ()) -> int:
    """Runs a verb and writes its answer or its error; returns the exit status. `words`: the command line, to name the way on."""
    with _stdout_into_stderr() if as_json else contextlib.nullcontext():
        document, text, code = _outcome(verb, words)
    try:
        if "error" in document:
            if text:
                print(text, file=sys.stderr, flush=True)
        elif text and not as_json:
            print(text, flush=True)
        if as_json:
            print(dumps(document), flush=True)
    except BrokenPipeError:  # the reader has read enough: `etude session list | head`
        _forget_readers()
    except OSError as error:
        if error.errno != errno.EIO:  # the terminal is gone (SIGHUP)
            raise
    return code


def _outcome(verb: Callable[[], Any], words: Sequence[str]) -> tuple[dict[str, Any], str, int]:
    try:
        answer = verb()
    except KeyboardInterrupt as stop:
        return _error("Interrupted", describe_stop(stop, words), status_of(stop))
    except Interrupted as error:
        return _error("Interrupted", describe_stop(error.stop, words), status_of(error.stop))
    except BrokenPipeError as error:
        if not _reader_is_gone():
            return _error(type(error).__name__, str(error), 1)
        _forget_readers()
        return _error("BrokenPipe", "", BROKEN_PIPE)
    except Exception as error:  # noqa: BLE001 - the outermost handler: every error is printed, and the exit status shows it
        # These two mark the usage errors of click.
        if hasattr(error, "format_message") and hasattr(error, "exit_code"):
            message = usage_message(error)
            if not message:  # help was printed, as nothing was asked for
                return {}, "", 0
            return _error("UsageError", message, error.exit_code)  # type: ignore[attr-defined]
        if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] in EXTRAS:
            return _error("MissingPackage", missing_package(error.name.partition(".")[0]), 1)
        if not _is_expected(error):  # a fault of ours: the person who reports it needs the place
            print(mask_keys(traceback.format_exc()), end="", file=sys.stderr)
        return _error(type(error).__name__, str(error) or type(error).__name__, 1)
    if isinstance(answer, Answer):
        return answer.document, answer.text, answer.code
    return {}, "", answer if isinstance(answer, int) else 0  # --help and --version have printed by themselves


def _is_expected(error: Exception) -> bool:
    """Whether its words were written for a person: our own errors, the system's, and a ValueError that our code raises about a value. One
    that Python or a library raises is a fault of ours."""
    if type(error).__module__.startswith("etude.") or isinstance(error, OSError):
        return True
    step = error.__traceback__
    if type(error) is not ValueError or step is None:
        return False
    while step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code
    own = str(step.tb_frame.f_globals.get("__name__", "")).startswith("etude.")
    return own and code.co_code[step.tb_lasti] == _RAISE


def describe_stop(stop: KeyboardInterrupt, words: Sequence[str]) -> str:
    """What stopped a command, what of its work is kept, and the command that goes on."""
    sentences = [f"stopped by {name_of(stop)}", *getattr(stop, "__notes__", ())]
    if words[:1] and words[0] in RESUMABLE or " ".join(words[:2]) in RESUMABLE:
        kept = [] if len(sentences) > 1 else ["what is finished is kept"]
        sentences += [*kept, f"go on with: {shlex.join(['etude', *words])}"]
    return "; ".join(sentences)


def _error(kind: str, message: str, code: int) -> tuple[dict[str, Any], str, int]:
    message = mask_keys(message)
    return {"error": {"type": kind, "message": message}}, f"error: {message}" if message else "", code


def _reader_is_gone() -> bool:
    """Whether stdout has lost its reader. A pipe of a sandbox or a server can break too, which is an error."""
    poll = select.poll()
    poll.register(1, 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))


def _forget_readers() -> None:
    """What is still buffered goes nowhere, so that the interpreter's end does not complain."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


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


MOST_SUGGESTED = 3
_NO_COMMAND = re.compile(r"No such command '(.*)'\.", re.DOTALL)


def usage_message(error: Any) -> str:
    """The words of one of click's usage errors, with its own suggestions checked. Typer carries its own copy of click, whose usage errors
    have no public name, so they are known by their attributes."""
    if getattr(error, "possibilities", None):
        error.possibilities = similar(error.option_name, error.possibilities, MOST_SUGGESTED)
    message: str = error.format_message().replace(
        ": Value error, ", ": ", 1
    )  # the class, which typer takes over from pydantic
    found = _NO_COMMAND.match(message)
    commands = getattr(getattr(getattr(error, "ctx", None), "command", None), "commands", None)
    if found is None or commands is None:
        return message
    shown = [name for name, command in commands.items() if not command.hidden]
    near = similar(found[1], shown, MOST_SUGGESTED)
    if near:
        return f"{found[0]} Did you mean {', '.join(near)}?"
    path = error.ctx.command_path
    return f"{found[0]} {path} --help lists the commands"
