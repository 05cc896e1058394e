"""Where a session's turns lie in its token segments, and a hint's own tokens: what `learn/train/feedback.py` needs of a flagged turn.

A hint is rendered as a message of the user's and belongs in front of the generation prompt, behind all that the turn had seen. It
is kept with the rollout as plain numbers, for the session is gone when the step is trained.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.core.trace.message import Message
from etude.core.trace.session import Session
from etude.rl.hints.hint import Hint

_ASKED = Message("user", "a")


class HintNotRenderable(ValueError):
    """A hint that the chat format can't hold in front of a turn."""


@dataclass(frozen=True)
class TurnSpan:
    """Of one turn: its sampled tokens are ids[start:stop] of segment `segment`, what was rendered before them begins at `lead`."""

    segment: int
    lead: int
    start: int
    stop: int


def places(session: Session) -> dict[int, TurnSpan]:
    """By completion, in the numbering of `Session.segments`: a turn that several branches share belongs to the last of them."""
    parents = {entry.id: entry.parent for entry in session.entries if entry.tokens is not None}
    added = {entry.id: entry.tokens for entry in session.entries if entry.tokens is not None}
    inner = set(parents.values())
    found: dict[int, TurnSpan] = {}
    number = 0
    paths = [_path(parents, leaf) for leaf in parents if leaf not in inner]
    last = {entry: i for i, path in enumerate(paths) for entry in path}
    for i, path in enumerate(paths):
        at, sampled = 0, False
        for entry in path:
            tokens = added[entry]
            if tokens.logprobs and last[entry] == i:
                start = at + tokens.lead
                found[entry] = TurnSpan(number, at, start, start + len(tokens.logprobs))
                sampled = True
            at += len(tokens.ids)
        number += sampled  # segments without a sampled token are left out
    return found


def _path(parents: dict[int, int | None], leaf: int) -> list[int]:
    path = [leaf]
    while (parent := parents[path[-1]]) is not None:
        path.append(parent)
    return path[::-1]


def hint_ids(renderer: Renderer, text: str) -> list[int]:
    """The tokens that a message of the user's adds to a conversation. Raises Unplaced where the format rewrites what stood before."""
    before = renderer.render([_ASKED], (), generation=False)
    after = renderer.render([_ASKED, Message("user", text)], (), generation=False)
    if after[: len(before)] != before:
        raise HintNotRenderable(
            f"the chat format {renderer.name} does not append a message: hints need one that does; leave rl.feedback.weight at 0"
        )
    return after[len(before) :]


def generation_ids(renderer: Renderer) -> list[int]:
    """The generation prompt."""
    return renderer.render([_ASKED], ())[len(renderer.render([_ASKED], (), generation=False)) :]


def placed(hints: Iterable[Hint], session: Session, renderer: Renderer) -> list[dict[str, Any]]:
    """Each hint with its place: kind, text, ids, segment, at, start, stop. A turn has one hint, the first. Raises Unplaced.

    After the `ids`, inserted before position `at`, the generation prompt is complete.
    """
    where, prompt = places(session), generation_ids(renderer)
    rows: dict[int, dict[str, Any]] = {}
    for hint in hints:
        place = where.get(hint.entry)
        if place is None or hint.entry in rows:
            continue  # without sampled tokens there is nothing to teach
        tokens = session.entries[hint.entry].tokens
        kept = _shared_end(tokens.ids[: tokens.lead] if tokens else [], prompt)
        ids = [*hint_ids(renderer, hint.text), *prompt[: len(prompt) - kept]]
        rows[hint.entry] = {
            "kind": hint.kind, "text": hint.text, "ids": ids, "segment": place.segment, "at": place.start - kept,
            "start": place.start, "stop": place.stop,
        }  # fmt: skip
    return list(rows.values())


def _shared_end(lead: list[int], prompt: list[int]) -> int:
    """How many tokens of the generation prompt stand before the turn already. Some formats have none, or a part of it, behind a
    tool's answer; behind a hint it is whole."""
    most = min(len(lead), len(prompt))
    return next((n for n in range(most, 0, -1) if lead[-n:] == prompt[-n:]), 0)
