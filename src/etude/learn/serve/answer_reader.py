"""What one answer says, token by token: text, thinking, and where a stop string ends it.

Streamed and whole answers are read by the same code, so the pieces of a stream make exactly the text of the whole answer. A stop string
ends the answer's text; thinking and tool calls are not searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from etude.agent.chat.live import Characters, Piece
from etude.agent.policy.wire.answer_stream import SentText
from etude.core.trace.completion import Completion, SampledTokens
from etude.core.trace.message import Message

Feed = Callable[[Sequence[int]], list[Piece]]
# Turns the sampled ids of a whole answer into a message.
Parse = Callable[[Sequence[int]], Message]


class StopScanner:
    """Passes text on up to the first stop string, and keeps back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """The text that is certain to precede a stop string."""
        if not self._stops or self.found:
            return "" if self.found else text
        text = self._held + text
        places = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if places:
            self.found, self._held = True, ""
            return text[: min(places)]
        keep = max(self._begun(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def rest(self) -> str:
        """What was kept back, where no text follows."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _begun(text: str, stop: str) -> int:
        longest = min(len(text), len(stop) - 1)
        return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)


@dataclass(frozen=True)
class ServedAnswer:
    """A whole answer. `tokens` ends with the token that completed a stop string."""

    message: Message
    tokens: SampledTokens
    completion: Completion
    stopped: bool

    @property
    def finish(self) -> str:
        return "stop" if self.stopped else self.completion.finish


class AnswerReader:
    """Any number of `add`, then `close`."""

    def __init__(self, feed: Feed, stops: Sequence[str], parse: Parse | None = None) -> None:
        self._feed = feed
        self._scanner = StopScanner(stops)
        self._parse = parse
        self._sent = SentText()
        self.count = 0  # tokens read

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self._scanner.found

    def add(self, ids: Sequence[int]) -> list[Piece]:
        """The pieces that these tokens make. Tokens behind a stop string are not read."""
        pieces: list[Piece] = []
        for token in ids:
            if self.stopped:
                break
            self.count += 1
            for part, text in self._feed([token]):
                self._take(part, self._scanner.add(text) if part == "text" else text, pieces)
        return pieces

    def close(self, completion: Completion, rest: Callable[[], str] = str) -> tuple[list[Piece], ServedAnswer]:
        """Reads the tokens that `add` has not read; the last pieces and the answer. `rest` is text that was incomplete."""
        assert completion.tokens is not None
        tokens = completion.tokens
        pieces = self.add(tokens.ids[self.count :])
        if not self.stopped and (text := rest()):
            self._take("text", self._scanner.add(text), pieces)
        tokens = first_tokens(tokens, self.count)
        if self.stopped:
            message = Message("assistant", self._sent.text, self._sent.thinking)
            return pieces, ServedAnswer(message, tokens, completion, True)
        self._take("text", self._scanner.rest(), pieces)
        if self._parse is None:
            return pieces, ServedAnswer(Message("assistant", self._sent.text), tokens, completion, False)
        message = self._parse(tokens.ids)
        delivered = self._sent.message(message)
        for part in ("text", "thinking") if self._sent.text else ("thinking", "text"):
            self._take(part, self._sent.rest(part, message), pieces)
        return pieces, ServedAnswer(delivered, tokens, completion, False)

    def _take(self, part: str, text: str, pieces: list[Piece]) -> None:
        if text and part in ("text", "thinking"):
            self._sent.add(part, text)  # type: ignore[arg-type]
            pieces.append((part, text))  # type: ignore[arg-type]


def first_tokens(tokens: SampledTokens, count: int, start: int = 0) -> SampledTokens:
    """The tokens from `start` to `count`. Routes are those of the whole answer."""
    here = slice(start, count)
    top = None if tokens.top is None else tokens.top[here]
    return replace(
        tokens, ids=tokens.ids[here], logprobs=tokens.logprobs[here], versions=tokens.versions[here], top=top
    )


def text_feed(decode: Callable[[Sequence[int]], str], ends: frozenset[int]) -> tuple[Feed, Callable[[], str]]:
    """Reads plain text; tokens of `ends` say nothing. The second function gives text that is still incomplete."""
    characters = Characters(decode)

    def feed(ids: Sequence[int]) -> list[Piece]:
        return [("text", text) for token in ids if token not in ends and (text := characters.add(token))]

    return feed, characters.rest
