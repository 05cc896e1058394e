"""Messages to tokens and back: the protocol of a model family's chat format.

Promise 2 rests on it: pieces are rendered on their own and appended, so a longer conversation's tokens start with exactly
those of the shorter one, and a sampled turn is kept as ids and only *read* by `parse`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, Sequence

from etude.trace.message import Message


class RenderError(ValueError):
    """A message this format can't express. The caller's mistake; says which part and what to do."""


@dataclass(frozen=True)
class TokenKinds:
    """How many tokens of a sampled turn went where; the end marker counts with the part it closes."""

    thinking: int = 0  # text in front of calls
    calling: int = 0  # calls and their arguments
    message: int = 0  # text of a turn without calls, or the message of `done`


class Renderer(Protocol):
    """A chat format over one tokenizer. Stateless and safe to share between sessions."""

    name: str
    fingerprint: str  # changes whenever the same messages could become other ids
    stop_ids: tuple[int, ...]

    def render_message(self, message: Message) -> list[int]:
        """The tokens of one whole message, markers included. Raises RenderError."""
        ...

    def render_prefix(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """The tokens a segment starts with: tool declarations if the format has any, then the messages."""
        ...

    def generation_prompt(self) -> list[int]:
        """What stands in front of a sampled turn."""
        ...

    def close_turn(self, ids: Sequence[int]) -> list[int]:
        """What must follow a sampled turn before the next message: nothing, or the end marker of a cut-off turn."""
        ...

    def parse(self, ids: Sequence[int], *, first_call: int = 0) -> Message:
        """Read a sampled turn. Never raises: what is wrong stands in `problem`. Calls are named c<first_call>, ..."""
        ...

    def loss_mask(self, ids: Sequence[int]) -> list[bool]:
        """True where a policy speaks in an already rendered sequence (its end markers included)."""
        ...

    def count(self, ids: Sequence[int]) -> TokenKinds:
        """How a sampled turn's tokens divide; the length penalty weighs the kinds differently."""
        ...

    def vocabulary(self) -> list[str]:
        """Every token's text by id, for readers without a tokenizer."""
        ...
