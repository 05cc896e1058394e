"""Grammars read text of other people in a process of their own, because a grammar is native code that a text may crash.

Seen: tree-sitter-bash 0.25.1 dies of some characters after `$`. Such a text costs its own result and nothing else: it is tried a second time, as
the process may have been killed for another reason, and the next text gets another process.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from etude.agent.code_index.definitions import Definition, Syntax, TooHard

# A megabyte of code takes 0.2 s; a grammar that is still busy after this on a crowded machine won't end soon.
ANSWER_S = 60.0


class GrammarCrashed(TooHard):
    """The grammar's code crashed on this text, or did not end."""


def syntax_of(grammar: str, source: bytes) -> Syntax:
    """Definitions and prose of a source. Raises TooHard, and GrammarCrashed."""
    found = _ask("syntax", grammar, source)
    prose = [(first, last) for first, last in found["prose"]]
    return Syntax([Definition(**definition) for definition in found["definitions"]], prose)


def first_error(grammar: str, source: bytes) -> int:
    """The first line that is no syntax of the grammar, from 1; 0 if all is. Raises TooHard, and GrammarCrashed."""
    return _ask("first_error", grammar, source)


class _GrammarWorker:
    """The process at the other end of two pipes."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        words = [sys.executable, "-P", "-m", "etude.agent.code_index.grammar_child"]
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def ask(self, request: dict[str, Any], source: bytes) -> str:
        """The line that it answers; "" if it died. Raises TimeoutError."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(json.dumps(request).encode() + b"\n" + source)
            stdin.flush()
        except OSError:
            return ""
        answer, until = b"", time.monotonic() + ANSWER_S
        ready = select.poll()  # select() takes no descriptor above 1,023
        ready.register(stdout, select.POLLIN)
        while not answer.endswith(b"\n"):
            if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError
            piece = os.read(stdout.fileno(), 1 << 20)
            if not piece:
                return ""
            answer += piece
        return answer.decode()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # a request that it did not take is still in the buffer
                    stream.close()


class _Children:
    """One process for all threads, and another one after a fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _GrammarWorker | None = None
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self.end)

    def ask(self, request: dict[str, Any], source: bytes) -> str:
        """The answer; "" where the process died twice, or did not end."""
        with self._lock:
            for _ in range(2):
                if self._child is None:
                    self._child = _GrammarWorker()
                try:
                    answer = self._child.ask(request, source)
                except BaseException as error:  # what it still answers would be taken for the next answer
                    self.end()
                    if isinstance(error, TimeoutError):
                        return ""
                    raise
                if answer:
                    return answer
                self.end()
            return ""

    def end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def _forget(self) -> None:
        self._lock, self._child = threading.Lock(), None


_children = _Children()


def _ask(task: str, grammar: str, source: bytes) -> Any:
    answer = _children.ask({"task": task, "grammar": grammar, "bytes": len(source)}, source)
    if not answer:
        raise GrammarCrashed(
            f"{grammar}: the grammar crashed on a text of {len(source)} bytes, or took more than {ANSWER_S:g} s"
        )
    found = json.loads(answer)
    if "too_hard" in found:
        raise TooHard(found["too_hard"])
    return found["answer"]
