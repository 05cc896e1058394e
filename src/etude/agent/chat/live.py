"""A turn as it is sampled: which piece of it is text, which is thinking and which belongs to a call, recognised by token ids.

For the eye, and for clients that read a stream. What a turn says is decided by `Renderer.parse` when it is whole: the pieces of
a well-formed turn make its text and its thinking, but for the blanks at their ends; those of a malformed one may not.
Pieces end between characters, whatever tokens a character is made of. Each token costs a few microseconds, however long the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

# "call" is a call as the model writes it, in its format's own spelling.
Part = Literal["text", "thinking", "call"]
Piece = tuple[Part, str]
# A character has at most four bytes, hence four tokens. More that make no text are broken bytes, shown as they decode.
UNFINISHED = 16


class Characters:
    """Token ids to text, whole characters only."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._before: list[int] = []  # a tokenizer may write a token's blank only behind another
        self._open: list[int] = []

    def add(self, token: int) -> str:
        """What this token completes."""
        self._open.append(token)
        text = self._decode([*self._before, *self._open])
        if text.endswith("\ufffd") and len(self._open) < UNFINISHED:
            return ""
        return self._whole(text)

    def rest(self) -> str:
        """What is open where no token follows: broken bytes, or a U+FFFD that the model wrote."""
        return self._whole(self._decode([*self._before, *self._open])) if self._open else ""

    def _whole(self, text: str) -> str:
        piece = text[len(self._decode(self._before)) :]
        self._before, self._open = self._open, []
        return piece


class LiveTurn:
    """One turn. `marks` are the tokens that begin a part, or (None) end the turn; within a call they mean nothing. Where the
    end of the thinking is no token of its own, `think_end` is its spelling. `call_begins` is the spelling that opens a call at the
    beginning of a line, where no token does."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        marks: Mapping[int, Part | None],
        *,
        begins: Part = "text",
        think_end: str = "",
        call_begins: str = "",
    ) -> None:
        self._decode = decode
        self._marks = marks
        self._think_end = think_end
        self._call_begins = call_begins
        self._part: Part | None = begins
        self._begin(begins)

    def feed(self, ids: Sequence[int]) -> list[Piece]:
        """The pieces that these tokens, which follow those fed before, make; none is empty."""
        pieces: list[Piece] = []
        for token in ids:
            if self._part is not None:
                self._token(token, pieces)
        return pieces

    def _token(self, token: int, pieces: list[Piece]) -> None:
        if token not in self._marks or (self._part == "call" and self._marks[token] is not None):
            self._say(self._characters.add(token), pieces)
            return
        self._say(self._characters.rest(), pieces)
        if self._part == "text" and self._held.strip():  # the beginning of a call that did not follow
            _add(pieces, "text", self._held.rstrip())
        self._begin(self._marks[token])
        if self._part == "call":
            self._say(self._characters.add(token), pieces)

    def _begin(self, part: Part | None) -> None:
        self._part = part
        self._characters = Characters(self._decode)
        self._held = ""  # blanks that may turn out to be the end, or the beginning of `think_end`
        self._fresh = True

    def _say(self, text: str, pieces: list[Piece]) -> None:
        part = self._part
        if part is None or not text:
            return
        if part == "call":
            return _add(pieces, part, text)
        text = self._held + text
        after = None
        if part == "thinking" and self._think_end:
            text, found, rest = text.partition(self._think_end)
            after = rest if found else None
        text = text.lstrip() if self._fresh else text
        begin = self._call_at(text) if part == "text" else None
        unsure = self._unsure(text) if begin is None else len(text) - begin
        settled = text[: len(text) - unsure].rstrip()
        self._held = text[len(settled) :]
        if settled:
            self._fresh = False
            _add(pieces, part, settled)
        if after is not None:
            self._begin("text")
            self._say(after, pieces)
        if begin is not None:
            self._begin("call")
            _add(pieces, "call", text[begin:])

    def _unsure(self, text: str) -> int:
        """How many characters at the end may be the beginning of `think_end`, or of a call."""
        word = self._think_end if self._part == "thinking" else self._call_begins
        longest = min(len(text), len(word) - 1)
        return next((n for n in range(longest, 0, -1) if text.endswith(word[:n])), 0)

    def _call_at(self, text: str) -> int | None:
        """Where a call begins at the beginning of a line."""
        at = text.find(self._call_begins) if self._call_begins else -1
        while at >= 0:
            _, line_break, before = text[:at].rpartition("\n")
            if (line_break or self._fresh) and not before.strip():
                return at
            at = text.find(self._call_begins, at + 1)
        return None


class HarmonyTurn(LiveTurn):
    """gpt-oss names each message's channel and recipient in a header, which decides what the body is."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], *, opens: frozenset[int], body: int, ends: frozenset[int]
    ) -> None:
        super().__init__(decode, {})
        self._opens, self._body, self._ends = opens, body, ends
        self._header: list[int] | None = []  # the generation prompt has opened the first header

    def _token(self, token: int, pieces: list[Piece]) -> None:
        if self._header is None and token in self._ends | self._opens:
            self._say(self._characters.rest(), pieces)
        if token in self._ends:
            self._header = []
        elif self._header is None and token in self._opens:
            self._header = [token]
        elif self._header is None:
            self._say(self._characters.add(token), pieces)
        elif token != self._body:
            self._header.append(token)
        else:
            head = self._decode(self._header)
            self._header = None
            self._begin("call" if "to=" in head else "thinking" if "analysis" in head else "text")
            if self._part == "call":
                self._say(head, pieces)  # it names the tool


def _add(pieces: list[Piece], part: Part, text: str) -> None:
    if pieces and pieces[-1][0] == part:
        pieces[-1] = (part, pieces[-1][1] + text)
    else:
        pieces.append((part, text))
