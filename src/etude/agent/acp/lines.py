"""The lines that an editor sends, as the SDK can read them: each one a JSON object without lone surrogates.

The SDK's reader ends the process at a line that is JSON and no object. Such a line, one that is no JSON, and one without end are
answered with the error that JSON-RPC has for them, and the connection goes on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Protocol

from etude.core.trace.plain_json import parse
from etude.core.trace.unicode import whole

# A prompt with a large file in it has some megabytes.
MAX_LINE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 16
_PARSE_ERROR, _INVALID_REQUEST = -32700, -32600


class ErrorWriter(Protocol):
    """What errors are written to."""

    def write(self, data: bytes) -> None: ...


async def pump(editor: asyncio.StreamReader, agent: asyncio.StreamReader, answers: ErrorWriter) -> None:
    """Hand on what the editor sends until it closes the stream."""
    lines = JsonLineReader()
    try:
        while data := await editor.read(_CHUNK_BYTES):
            for message in lines.feed(data):
                _hand_on(message, agent, answers)
        for message in lines.feed(b"\n"):  # a last line without an end
            _hand_on(message, agent, answers)
    finally:
        agent.feed_eof()


def _hand_on(message: dict[str, Any] | BadLine, agent: asyncio.StreamReader, answers: ErrorWriter) -> None:
    if isinstance(message, dict):
        agent.feed_data(json.dumps(message).encode() + b"\n")
    else:
        answers.write(json.dumps(_refusal(message)).encode() + b"\n")


class BadLine(ValueError):
    """A line that is no message; `code` is JSON-RPC's."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code


class JsonLineReader:
    """Messages from bytes as they arrive."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._skipping = False  # within a line that is too long

    def feed(self, data: bytes) -> Iterator[dict[str, Any] | BadLine]:
        """The messages that these bytes complete, and what is none."""
        *whole_lines, rest = data.split(b"\n")
        for line in whole_lines:
            self._held += line
            complete, self._held = bytes(self._held), bytearray()
            if self._skipping:
                self._skipping = False
            elif complete.strip():
                yield _message(complete)
        self._held += rest
        if len(self._held) > MAX_LINE_BYTES:
            if not self._skipping:
                yield BadLine(_INVALID_REQUEST, f"the line is longer than {MAX_LINE_BYTES >> 20} MiB")
            self._held, self._skipping = bytearray(), True


def _message(line: bytes) -> dict[str, Any] | BadLine:
    try:
        message = parse(line.decode(errors="replace"))
    except ValueError as error:
        return BadLine(_PARSE_ERROR, f"the line is no JSON: {error}")
    if isinstance(message, list):
        return BadLine(_INVALID_REQUEST, "the line is a JSON array; send one request a line, batches are not taken")
    if not isinstance(message, dict):
        return BadLine(_INVALID_REQUEST, f"the line is a JSON {type(message).__name__}; send an object")
    return whole(message)


def _refusal(error: BadLine) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": error.code, "message": str(error)}}
