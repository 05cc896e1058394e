"""A checkpoint's own chat template, rendered as Hugging Face does it: what our renderers are held against.

The environment is that of `transformers` (sandboxed, blocks trimmed, its filters and helpers). The template is the checkpoint's, that is
foreign code: it can reach nothing, and it runs in a separate process with limits on memory, time and text (`template_child.py`).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Sequence

from etude.agent.chat.files import read_json, read_template

RENDER_S = 10.0  # real templates take milliseconds
MOST_ANSWER_BYTES = 128 << 20  # of a line of JSON: six bytes a character at most
PIECE_BYTES = 1 << 16
ENDED_S = 1.0  # between the end of a process' output and its own
SHOWN_BYTES = 2000  # of what it said at its end


class TemplateError(ValueError):
    """A template that does not compile, refuses a conversation, or exceeds its limits; says what it said."""


class ChatTemplate:
    """Text of a conversation by the checkpoint's template. `date` is the date that it takes for today."""

    def __init__(self, source: str, names: dict[str, str], date: str, *, limit_s: float = RENDER_S) -> None:
        self._names = names
        self._child = _TemplateProcess(source, date, limit_s)

    @classmethod
    def load(cls, folder: Path, date: str) -> ChatTemplate | None:
        """The folder's, or None if it has none. Raises TemplateError, ValueError for a damaged file."""
        source = read_template(folder)
        if source is None:
            return None
        settings = read_json(folder / "tokenizer_config.json")
        names = {key: _word(value) for key, value in settings.items() if key.endswith("_token") and value}
        return cls(source, names, date)

    def text(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], *, generation: bool, **settings: Any
    ) -> str:
        """The conversation as text; raises TemplateError if the template refuses it, or takes too long, too much memory or too many words."""
        values = {"messages": list(messages), "tools": list(tools) or None, "add_generation_prompt": generation}
        return self._child.render(values | self._names | settings)


class _TemplateProcess:
    """The process, started at the first need and again after it was ended for exceeding a limit."""

    def __init__(self, source: str, date: str, limit_s: float) -> None:
        self._first = {"source": source, "date": date}
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes]
        self._start()

    def render(self, values: dict[str, Any]) -> str:
        if self._process is None:
            self._start()
        return self._ask({"render": values}, "refuses the conversation")

    def _start(self) -> None:
        words = [sys.executable, "-I", str(Path(__file__).with_name("template_child.py"))]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env={}
        )
        weakref.finalize(self, _end, self._process)
        self._ask(self._first, "does not compile")

    def _ask(self, request: dict[str, Any], fault: str) -> str:
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(_line(process.stdout.fileno(), time.monotonic() + self._limit_s))
        except (_Exceeded, OSError, ValueError, RecursionError) as error:
            self._process = None
            why = str(error) if isinstance(error, _Exceeded) else self._why_ended(process)
            _end(process)
            raise TemplateError(f"the chat template {fault}: {why}") from error
        if "refused" in answer:
            raise TemplateError(f"the chat template {fault}: {answer['refused']}")
        return answer["text"]

    def _why_ended(self, process: subprocess.Popen[bytes]) -> str:
        """Why the process ended by itself: a signal is a limit of the kernel, for anything else the reason is its last output."""
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDED_S)
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - SHOWN_BYTES))
        said = self._errors.read().decode(errors="replace").strip()
        last = said.rpartition("\n")[2]
        if last.startswith("MemoryError") or process.returncode is not None and process.returncode < 0:
            return "its process ended: it needs more memory or time than is given"
        return f"its process ended (exit status {process.returncode}): {last or 'it said nothing'}"


class _Exceeded(Exception):
    """A limit of this side."""


def _line(descriptor: int, until: float) -> bytes:
    """The next line; empty if the process has ended."""
    held = bytearray()
    poll = select.poll()  # `select` takes no descriptor above 1023
    poll.register(descriptor, select.POLLIN)
    while not held.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise _Exceeded("it takes too long")
        piece = os.read(descriptor, PIECE_BYTES)
        if not piece:
            return b""
        held += piece
        if len(held) > MOST_ANSWER_BYTES:
            raise _Exceeded("its text is too long")
    return bytes(held)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:  # what was not written yet has no reader
                continue
    process.wait()


def _word(value: Any) -> str:
    return str(value["content"]) if isinstance(value, dict) and "content" in value else str(value)
