"""Messages to tokens and back: the protocol of a model family's chat format.

Promise 2 rests on it: a sampled turn is kept as ids and only *read* by `parse`; what follows it is rendered by `bridge` alone
and appended. A family that can't prove that the appended tokens continue those held answers None, and the trace forks and is
counted. A format whose messages stand alone (`Pieces`) can also be rendered message by message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol, Sequence

from etude.agent.chat.live import LiveTurn
from etude.core.trace.message import Message

Effort = Literal["low", "medium", "high"]
# How long a model's thinking stays before it: as its family was trained, until the next request of a user's, or always.
Thinking = Literal["family", "cycle", "all"]


class RenderError(ValueError):
    """A message this format can't express. The caller's mistake; says which part and what to do."""


@dataclass(frozen=True)
class TokenKinds:
    """How many tokens of a sampled turn went where; the end marker counts with the part it closes."""

    thinking: int = 0  # thinking, and text in front of calls
    calling: int = 0  # calls and their arguments
    message: int = 0  # text of a turn without calls, or the message of `done`


@dataclass(frozen=True)
class Bridge:
    """The tokens between a sampled turn and the next one: its end if it was cut off, the new messages, the generation
    prompt. `taken[i]` of the tokens belong to the i-th new message; the rest are the format's own."""

    ids: list[int]
    taken: list[int]


class Pieces(Protocol):
    """A format whose messages stand alone: pieces are rendered on their own and appended."""

    def render_message(self, message: Message) -> list[int]:
        """The tokens of one whole message, markers included. Raises RenderError."""
        ...

    def render_prefix(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]]) -> list[int]:
        """The tokens a segment starts with: tool declarations if the format has any, then the messages."""
        ...

    def generation_prompt(self) -> list[int]:
        """The tokens in front of a sampled turn."""
        ...

    def close_turn(self, ids: Sequence[int]) -> list[int]:
        """What must follow a sampled turn before the next message: nothing, or the end marker of a cut-off turn."""
        ...


class Renderer(Protocol):
    """A chat format over one tokenizer. Stateless and safe to share between sessions and threads."""

    name: str
    fingerprint: str  # changes whenever the same messages could become other ids
    stop_ids: tuple[int, ...]

    @property
    def pieces(self) -> Pieces | None:
        """The same format message by message; None where neighbours matter (merged tool results, kept thinking)."""
        ...

    def at_effort(self, effort: Effort | None) -> Renderer:
        """The renderer that tells the model how hard to think; itself where the family has no field for it."""
        ...

    def keeping(self, thinking: Thinking) -> Renderer:
        """The renderer that keeps thinking so long; itself for `family` and where turns have no thinking."""
        ...

    def render(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], *, generation: bool = True
    ) -> list[int]:
        """A whole conversation, by default with the generation prompt. Costs in proportion to its length: for
        the start of a segment and for forks. Raises RenderError."""
        ...

    def bridge(
        self, turn: Message, sampled: Sequence[int], new: Sequence[Message], tools: Sequence[dict[str, Any]]
    ) -> Bridge | None:
        """What to append after a turn (its message and its sampled ids), in proportion to what is new. None: it can't be
        proven that this continues the held tokens as the family's template would (a new request, where the template drops
        old thinking; an answer that ended inside its thinking). Messages the format can't hold: None too, `render` says why."""
        ...

    def answer(self, message: Message, *, first_call: int = 0) -> list[int]:
        """An assistant message as the policy would have sampled it after the generation prompt, its end included."""
        ...

    def parse(self, ids: Sequence[int], *, tools: Sequence[dict[str, Any]] = (), first_call: int = 0) -> Message:
        """Read a sampled turn. Never raises: `problem` says what is wrong (see `problem.py`). `tools` give the types of
        untyped arguments. `first_call` calls were made before: ids stay unique in a session."""
        ...

    def listen(self) -> LiveTurn:
        """Reads one turn while it is sampled, for the eye: `parse` decides what it says."""
        ...

    def count(self, ids: Sequence[int]) -> TokenKinds:
        """How a sampled turn's tokens divide; the length penalty weighs the kinds differently."""
        ...

    def vocabulary(self) -> list[str]:
        """Every token's text by id, for readers without a tokenizer."""
        ...
