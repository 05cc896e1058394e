"""Server-sent events: frames out, and frames in from pieces that end anywhere (WHATWG HTML, section 9.2)."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

DONE = b"data: [DONE]\n\n"  # how OpenAI streams end


@dataclass(frozen=True)
class ServerSentEvent:
    """One event. `name` is empty where the stream names none."""

    data: str
    name: str = ""


def frame(data: Any, name: str = "") -> bytes:
    """One event with JSON data, on one line as JSON always is."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()


class EventReader:
    """Events from bytes as they arrive."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._data: list[str] = []
        self._name = ""

    def feed(self, received: bytes) -> Iterator[ServerSentEvent]:
        """The events that these bytes complete."""
        self._text += self._decoder.decode(received)
        # A carriage return at the end may be half of a line break.
        whole = self._text.removesuffix("\r")
        lines = whole.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._text = lines.pop() + self._text[len(whole) :]
        for line in lines:
            if (event := self._line(line)) is not None:
                yield event

    def end(self) -> Iterator[ServerSentEvent]:
        """The last event of a stream that ends without a blank line behind it."""
        lines, self._text = self._text.rstrip("\r"), ""
        for line in (lines, ""):
            if (event := self._line(line)) is not None:
                yield event

    def _line(self, line: str) -> ServerSentEvent | None:
        if not line:
            event = ServerSentEvent("\n".join(self._data), self._name) if self._data else None
            self._data, self._name = [], ""
            return event
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
        return None
