"""How many tokens a text has where none were counted: the same rule for a session in use and for one that is read later."""

from __future__ import annotations

from typing import NamedTuple

from etude.core.trace.message import Message

# The usual rule of thumb for English and code.
CHARS_PER_TOKEN = 4


class TurnTokens(NamedTuple):
    """A turn's tokens by purpose."""

    thinking: int = 0
    calling: int = 0
    message: int = 0


def estimate(message: Message) -> int:
    """Of a message of any role; at least one."""
    calls = sum(len(str(value)) for call in message.calls for value in call.arguments.values())
    return (len(message.text) + len(message.thinking) + calls) // CHARS_PER_TOKEN + 1


def count_turn_tokens(message: Message) -> TurnTokens:
    """Of a policy's turn. Text before calls is thinking; what `done` says is the message."""
    thinking = len(message.thinking) // CHARS_PER_TOKEN
    text = len(message.text) // CHARS_PER_TOKEN
    if not message.calls:
        return TurnTokens(thinking=thinking, message=text)
    final = sum(len(str(v)) for c in message.calls if c.name == "done" for v in c.arguments.values())
    calls = sum(len(c.name) + len(str(v)) for c in message.calls for v in c.arguments.values()) - final
    return TurnTokens(thinking + text, calls // CHARS_PER_TOKEN, final // CHARS_PER_TOKEN)
