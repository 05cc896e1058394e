"""Hints for calls that could not be made: an answer that can't be read, a tool that there is not, arguments that it does not take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etude.agent.metrics.of_session import tool_names
from etude.core.trace.message import CUT_OFF
from etude.core.trace.session import Session
from etude.rl.hints.hint import Hint
from etude.rl.hints.turns import turns_of

# Of what a tool objected to, as much as a reminder needs.
MOST_CHARACTERS = 200


def malformed_turn(session: Session) -> Iterator[Hint]:
    """One for each answer that the parser objected to; one that was cut off has none, for it might have ended well."""
    for turn in turns_of(session):
        if turn.message.problem not in (None, CUT_OFF):
            yield Hint(turn.entry, "malformed_turn", f"Reminder: Answers are refused for this: {turn.message.problem}.")


def unknown_tool(session: Session) -> Iterator[Hint]:
    """One for each turn that called a tool which was not offered. Sessions that do not say what was offered have none."""
    offered = _schemas(session)
    for turn in turns_of(session):
        if offered and any(one.malformed and one.call.name not in offered for one in turn.calls):
            yield Hint(turn.entry, "unknown_tool", f"Reminder: Available tools: {', '.join(offered)}.")


def invalid_arguments(session: Session) -> Iterator[Hint]:
    """One for each turn whose call of an offered tool was refused: what the tool takes and what it objected to."""
    offered, names = _schemas(session), tool_names(session)
    for turn in turns_of(session):
        refused = next((one for one in turn.calls if one.call.name in names and one.malformed), None)
        if refused is not None:
            objection = " ".join(refused.text.split())[:MOST_CHARACTERS]
            takes = _told(refused.call.name, offered.get(refused.call.name, {}))
            yield Hint(turn.entry, "invalid_arguments", f"Reminder: {takes} Not so: {objection}")


def _schemas(session: Session) -> dict[str, dict[str, Any]]:
    """Parameters by tool, as the session's header has them."""
    rows = session.header.harness_facts.get("schemas") or session.header.harness_facts.get("tools") or ()
    functions = [row.get("function", row) for row in rows if isinstance(row, dict)]
    return {one["name"]: one.get("parameters") or {} for one in functions if one.get("name")}


def _told(name: str, parameters: dict[str, Any]) -> str:
    required = set(parameters.get("required", ()))
    takes = [one if one in required else f"{one} (may be left out)" for one in parameters.get("properties", {})]
    return f"{name} takes {', '.join(takes)}." if takes else f"{name} takes no arguments."
