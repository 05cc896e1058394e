"""A summary that no model wrote: the person's requests and the agent's last answers, shortened. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from etude.core.trace.message import Message

_REQUESTS, _ANSWERS = 8, 4
_CHARS = 1000


def digest(messages: Sequence[Message]) -> str:
    """Of a conversation that its model could not sum up. What came after its last turn may be what is refused, and is left out."""
    last = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    messages = messages[: last + 1]
    requests = [message.text for message in messages if message.role == "user" and not message.summary and message.text]
    carried = [message.text for message in messages if message.role == "user" and message.summary]
    answers = [message.text for message in messages if message.role == "assistant" and message.text.strip()]
    calls = [call.name for message in messages for call in message.calls]
    lines = ["(The model could not sum up the conversation; these facts are known of it.)"]
    lines += [f"before: {_short(text)}" for text in carried[-1:]]
    lines += [f"asked: {_short(text)}" for text in requests[1:][-_REQUESTS:]]  # the first one stays as it is
    lines += [f"answered: {_short(text)}" for text in answers[-_ANSWERS:]]
    lines += [f"called {len(calls)} tools, last {', '.join(calls[-_ANSWERS:])}"] if calls else []
    return "\n".join(lines)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _CHARS else f"{text[: _CHARS - 1]}…"
