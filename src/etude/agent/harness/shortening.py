"""Makes a conversation of messages fit a model's context window. Pure.

`shortened` shortens texts in this order, each step only as far as needed: it leaves out the oldest tool results, cuts the results of the
last turn to equal shares, then cuts the longest texts in their middle. The system prompt stays. `digest` is the summary for a model that
can't write one. Token policies use neither, because their prompts are exact tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from etude.core.trace.message import Message

# Characters left of a text that is cut. A shorter rest carries no information.
MIN_CHARS = 200
_LEFT_OUT = "[left out to make room: "


def size(messages: Sequence[Message]) -> int:
    """Number of characters in all messages."""
    return sum(map(_size, messages))


def shortened(messages: Sequence[Message], most_chars: int) -> dict[int, str]:
    """New texts by the index of their message. If the conversation can't be made to fit, it is shortened as far as possible."""
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
    """Cut the longest texts of a group to one length, the largest one that saves enough."""
    lengths = sorted((len(texts[place]) for place in group), reverse=True)
    saved, limit = 0, MIN_CHARS
    for count, length in enumerate(lengths, 1):
        shorter = lengths[count] if count < len(lengths) else 0
        if saved + count * (length - shorter) >= over:
            limit = max(MIN_CHARS, length - -(-(over - saved) // count))
            break
        saved += count * (length - shorter)
    for place in group:
        texts[place] = _cut(texts[place], limit)


def _left_out(text: str) -> str:
    """A line that replaces a result. A line that already is such a replacement stays, with the original length."""
    stub = f"{_LEFT_OUT}{len(text):,} characters; call the tool again if you need them]"
    return stub if len(stub) < len(text) and not text.startswith(_LEFT_OUT) else text


def _cut(text: str, most_chars: int) -> str:
    """The beginning and the end of a text, with a line between them that states the original length."""
    if len(text) <= most_chars:
        return text
    words = f"\n[{len(text):,} characters, cut to make room]\n"
    room = max(0, most_chars - len(words))
    head = room * 2 // 3
    return text[:head] + words + text[len(text) - (room - head) :]


def _size(message: Message) -> int:
    calls = sum(len(call.name) + len(str(call.arguments)) for call in message.calls)
    return len(message.text) + len(message.thinking) + calls


_REQUESTS, _ANSWERS = 8, 4
_CHARS = 1000


def digest(messages: Sequence[Message]) -> str:
    """A summary of the user's requests and the agent's last answers, for a conversation that its model could not summarize.

    Messages after the last turn are left out, because they may be the reason of the refusal.
    """
    last = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    messages = messages[: last + 1]
    requests = [message.text for message in messages if message.role == "user" and not message.summary and message.text]
    carried = [message.text for message in messages if message.role == "user" and message.summary]
    answers = [message.text for message in messages if message.role == "assistant" and message.text.strip()]
    calls = [call.name for message in messages for call in message.calls]
    lines = ["(The model could not sum up the conversation; these facts are known of it.)"]
    lines += [f"before: {_shorten_line(text)}" for text in carried[-1:]]
    lines += [f"asked: {_shorten_line(text)}" for text in requests[1:][-_REQUESTS:]]  # the first one stays as it is
    lines += [f"answered: {_shorten_line(text)}" for text in answers[-_ANSWERS:]]
    lines += [f"called {len(calls)} tools, last {', '.join(calls[-_ANSWERS:])}"] if calls else []
    return "\n".join(lines)


def _shorten_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"
