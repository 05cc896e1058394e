"""The tokens behind a conversation (promise 2): a request continues the tokens held on its path, or the trace forks.

A turn is kept as it was sampled. What follows it is rendered by the format's own bridge and appended; where the format has
none for this case, the whole conversation is rendered and goes on only if it is proven, by comparison, to begin with exactly
the tokens held. Otherwise a new root holds all of it. The messages in front of the first turn keep tokens of their own, again
where rendering proves it, so that conversations that begin alike share them; later ones have theirs in the turn that reads
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etude.agent.chat.renderer import Renderer, RenderError
from etude.core.trace.message import Message

# Tokenizers encode some megabytes a second and release the interpreter: longer texts (5 ms) are encoded outside the event loop.
INLINE_CHARS = 16_000


@dataclass(frozen=True)
class TokenChain:
    """The tokens an entry adds to those held before it."""

    ids: list[int]
    before: TokenChain | None = None

    def all(self) -> list[int]:
        """All tokens up to here."""
        parts: list[list[int]] = []
        held: TokenChain | None = self
        while held is not None:
            parts.append(held.ids)
            held = held.before
        return [token for part in reversed(parts) for token in part]


@dataclass(frozen=True)
class Prompt:
    """A request's prompt: the tokens held, and `follows`; of a fork all of them follow."""

    ids: tuple[int, ...]
    follows: list[int]
    forks: bool = False


async def aside(messages: Sequence[Message], work: Callable[..., Any], *arguments: Any) -> Any:
    """Run `work` here if its messages are short, else on a thread."""
    if sum(len(message.text) for message in messages) < INLINE_CHARS:
        return work(*arguments)
    return await asyncio.to_thread(work, *arguments)


def opening(
    renderer: Renderer,
    known: Sequence[Message],
    held: list[int],
    new: Sequence[Message],
    tools: Sequence[dict[str, Any]],
) -> list[list[int]]:
    """The tokens that each of the `new` messages adds to those `held` by the `known` ones, as far as that can be proven: no
    tokens where it can't. Raises RenderError for a conversation that the format can't hold."""
    whole = renderer.render([*known, *new], tools)
    pieces: list[list[int]] = []
    for i in range(len(new)):
        try:
            ids = renderer.render([*known, *new[: i + 1]], tools, generation=False)
        except RenderError:  # some formats don't begin with a system prompt alone
            ids = []
        proven = len(ids) >= len(held) and ids[: len(held)] == held and whole[: len(ids)] == ids
        pieces.append(ids[len(held) :] if proven else [])
        held = ids if proven else held
    return pieces


async def continue_prompt(
    renderer: Renderer,
    held: list[int],
    messages: Sequence[Message],
    turn: int | None,
    sampled: list[int],
    tools: Sequence[dict[str, Any]],
) -> Prompt:
    """The prompt of a conversation. `turn` is the place of its last sampled turn, `sampled` that turn's ids. Raises
    RenderError."""
    if turn is not None:
        new = messages[turn + 1 :]
        bridge = await aside(new, renderer.bridge, messages[turn], sampled, new, tools) if new else None
        if bridge is not None:
            return Prompt((*held, *bridge.ids), bridge.ids)
    whole: list[int] = await aside(messages, renderer.render, messages, tools)
    if whole[: len(held)] == held:
        return Prompt(tuple(whole), whole[len(held) :])
    return Prompt(tuple(whole), whole, forks=True)
