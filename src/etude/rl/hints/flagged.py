"""From sessions to flagged turns: all hints of a session, kept with its rollout, and those that a step learns from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Session
from etude.rl.hints.calls import invalid_arguments, malformed_turn, unknown_tool
from etude.rl.hints.hint import Hint
from etude.rl.hints.manners import repeated_read, unfinished_todos
from etude.rl.hints.places import placed

# In the order in which they go before each other at one turn.
RULES: tuple[Callable[[Session], Iterator[Hint]], ...] = (
    malformed_turn, unknown_tool, invalid_arguments, unfinished_todos, repeated_read,
)  # fmt: skip


def hints_of(session: Session) -> list[Hint]:
    """By all rules."""
    return [hint for rule in RULES for hint in rule(session)]


def kept_hints(session: Session, renderer: Renderer) -> list[dict[str, Any]]:
    """For `Rollout.info["hints"]`, JSON values. Raises Unplaced."""
    return placed(hints_of(session), session, renderer)


def chosen(rollouts: Sequence[Rollout], most: int) -> list[tuple[Rollout, dict[str, Any]]]:
    """At most `most` flagged turns: of every rollout the first, then of every rollout the second, and so on. Order is fixed."""
    rows = [(place, r, hint) for r, one in enumerate(rollouts) for place, hint in enumerate(one.info.get("hints", ()))]
    return [(rollouts[r], hint) for _, r, hint in sorted(rows, key=lambda row: row[:2])[:most]]
