"""Makes a conversation of messages fit a model's window: which texts become shorter, and how.

In this order, each only as far as it is needed: the oldest tool results are left out, those that answer the last turn are cut to equal
shares, then the longest texts of all are cut in their middle. The system prompt stays. Token policies never come here: their prompts
are exact tokens. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from etude.core.trace.message import Message

# What is left of a text that is cut: below this it says nothing any more.
LEAST_CHARS = 200
_LEFT_OUT = "[left out to make room: "


def size(messages: Sequence[Message]) -> int:
    """Characters of all that is sent."""
    return sum(map(_size, messages))


def shortened(messages: Sequence[Message], most_chars: int) -> dict[int, str]:
    """New texts by the place of their message. Where the conversation can't be made to fit, as far as it goes."""
    texts = {place: message.text for place, message in enumerate(messages)}
    fixed = size(messages) - sum(map(len, texts.values()))
    last = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    results = [place for place, message in enumerate(messages) if message.role == "tool"]

    def over() -> int:
        return fixed + sum(map(len, texts.values())) - most_chars

    for place in (place for place in results if place < last):
        if over() <= 0:
            break
        texts[place] = _left_out(texts[place])
    for group in ([place for place in results if place > last], _spoken(messages)):
        if over() > 0:
            _share(texts, group, over())
    return {place: text for place, text in texts.items() if text != messages[place].text}


def _spoken(messages: Sequence[Message]) -> list[int]:
    return [place for place, message in enumerate(messages) if message.role != "system"]


def _share(texts: dict[int, str], group: Sequence[int], over: int) -> None:
    """Cut the longest texts of a group to one length, the largest at which enough is saved."""
    lengths = sorted((len(texts[place]) for place in group), reverse=True)
    saved, limit = 0, LEAST_CHARS
    for count, length in enumerate(lengths, 1):
        shorter = lengths[count] if count < len(lengths) else 0
        if saved + count * (length - shorter) >= over:
            limit = max(LEAST_CHARS, length - -(-(over - saved) // count))
            break
        saved += count * (length - shorter)
    for place in group:
        texts[place] = _cut(texts[place], limit)


def _left_out(text: str) -> str:
    """A line in place of a result; one that is such a line already stays, with the length that was."""
    stub = f"{_LEFT_OUT}{len(text):,} characters; call the tool again if you need them]"
    return stub if len(stub) < len(text) and not text.startswith(_LEFT_OUT) else text


def _cut(text: str, most_chars: int) -> str:
    """The beginning and the end of a text, with a line between them that says what is missing."""
    if len(text) <= most_chars:
        return text
    words = f"\n[{len(text):,} characters, cut to make room]\n"
    room = max(0, most_chars - len(words))
    head = room * 2 // 3
    return text[:head] + words + text[len(text) - (room - head) :]


def _size(message: Message) -> int:
    calls = sum(len(call.name) + len(str(call.arguments)) for call in message.calls)
    return len(message.text) + len(message.thinking) + calls
