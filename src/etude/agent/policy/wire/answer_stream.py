"""One answer as a stream, in whatever format: pieces as they come, then the rest of the answer, then its end.

Pieces are sent before the whole turn is known: where a turn turns out malformed, its text may be another one
than the one sent. A client then has read what it has read (`SentText.message`), and its history will say so.
Calls are sent at the end: a turn with one broken call has none, so none may be sent before all of them are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message

TurnPart = Literal["text", "thinking"]
_PARTS: tuple[TurnPart, TurnPart] = ("thinking", "text")


class WireStream(Protocol):
    """The events of one format, for one answer, in their order."""

    def opening(self, usage: Usage) -> Iterator[dict[str, Any]]:
        """Once, first. `usage` is the usage known so far."""
        ...

    def piece(self, part: TurnPart, text: str) -> Iterator[dict[str, Any]]: ...

    def closing(self, answer: Completion) -> Iterator[dict[str, Any]]:
        """Once, last: the calls, and why and at what cost it ended. The answer's message is the one that was sent."""
        ...


@dataclass
class SentText:
    """The part of a turn that a client was sent."""

    text: str = ""
    thinking: str = ""

    def add(self, part: TurnPart, piece: str) -> None:
        setattr(self, part, getattr(self, part) + piece)

    def rest(self, part: TurnPart, message: Message) -> str:
        """The rest of this part: nothing where the part does not begin with what was sent. Pieces may have left out
        the blanks in front."""
        sent, whole = getattr(self, part), getattr(message, part)
        for text in (whole, whole.lstrip()):
            if text.startswith(sent):
                return text.removeprefix(sent)
        return ""

    def message(self, message: Message) -> Message:
        """The turn as the client will have heard it."""
        thinking, text = (getattr(self, part) + self.rest(part, message) for part in _PARTS)
        return replace(message, text=text, thinking=thinking)


class AnswerStream:
    """Writes one answer: any number of `piece`, then `close`."""

    def __init__(self, stream: WireStream) -> None:
        self._stream = stream
        self._heard = SentText()
        self._begun = False

    def piece(self, part: TurnPart, text: str) -> Iterator[dict[str, Any]]:
        """A piece of the turn, while it is sampled."""
        yield from self._opening(Usage())
        self._heard.add(part, text)
        yield from self._stream.piece(part, text)

    def close(self, answer: Completion) -> Iterator[dict[str, Any]]:
        """All that is left of the answer, which may be all of it."""
        message = answer.message
        assert message is not None
        yield from self._opening(answer.usage)
        # A text that was begun is not split by thinking that was not sent: readers join what follows each other.
        for part in reversed(_PARTS) if self._heard.text else _PARTS:
            if rest := self._heard.rest(part, message):
                yield from self._stream.piece(part, rest)
        yield from self._stream.closing(replace(answer, message=self._heard.message(message)))

    def _opening(self, usage: Usage) -> Iterator[dict[str, Any]]:
        if not self._begun:
            self._begun = True
            yield from self._stream.opening(usage)
