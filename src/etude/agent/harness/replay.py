"""Replays a session in a fresh sandbox and compares every entry: same tool results byte for byte, same token ids.

This is how demonstrations are proven real, and promise 1 in practice: the replay is built by `build_agent` from the header
alone, by whatever program holds the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import build_agent
from etude.agent.harness.header import session_header
from etude.agent.harness.parts import fitted
from etude.agent.harness.presets.preset import harness_hash
from etude.agent.harness.recorded import RecordedApprover, RecordedInbox
from etude.agent.harness.services import Services
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.replay import ReplayPolicy
from etude.core.trace.entry import Entry
from etude.core.trace.session import Session
from etude.sandbox.protocol import Operations

# Appended to a session after its end.
_LATER = ("verdict", "link")
# What must be equal; times, usage and seconds differ by nature.
_COMPARED = (
    "role",
    "text",
    "call_id",
    "name",
    "failed",
    "summary",
    "message",
    "number",
    "state",
    "counters",
    "reason",
    "finish",
    "delivery",
    "decision",
    "path",
    "hunks",
)


# Enough of a tool's answer to recognise the place.
SHOWN_BYTES = 60


@dataclass(frozen=True)
class Difference:
    """The first place where the replay left the recording."""

    entry: int
    what: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return self.told("recorded", "replayed")

    def told(self, first: str, second: str) -> str:
        """The difference in words, the two sides by these names."""
        place = f"entry {self.entry}, {self.what}"
        if isinstance(self.recorded, str) and isinstance(self.replayed, str):
            old, new = (text.encode("utf-8", "surrogatepass") for text in (self.recorded, self.replayed))
            at = _first_difference(old, new)
            shown = slice(max(0, at - SHOWN_BYTES // 2), at + SHOWN_BYTES)
            return f"{place}, byte {at}: {first} {old[shown]!r}, {second} {new[shown]!r}"
        if isinstance(self.recorded, list) and isinstance(self.replayed, list):
            at = _first_difference(self.recorded, self.replayed)
            return (
                f"{place}, position {at}: {first} {self.recorded[at : at + 4]}, {second} {self.replayed[at : at + 4]}"
            )
        return f"{place}: {first} {self.recorded!r}, {second} {self.replayed!r}"


def _first_difference(old: Sequence[Any], new: Sequence[Any]) -> int:
    pairs = zip(old, new, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))


def made_with(session: Session, renderer: Renderer | None) -> bool:
    """Whether this harness with this renderer is the one that the session's header names."""
    settings = HarnessSettings.model_validate(session.header.settings)
    chat = fitted(renderer, settings).fingerprint if renderer else ""
    return harness_hash(settings, chat) == session.header.harness


async def replay(
    session: Session, sandbox: Operations, *, renderer: Renderer | None = None, services: Services | None = None
) -> Difference | None:
    """None if everything was equal. The sandbox must hold the task's files as they were when the session began.

    A session with tokens needs the renderer of its model, also if a scripted expert spoke; another renderer or another
    harness is a difference at once.
    """
    header = session.header
    settings = HarnessSettings.model_validate(header.settings)
    facts = TaskFacts.from_json(header.task_id, header.facts)
    policy = ReplayPolicy(session)
    again = session_header(settings, policy, facts, renderer=renderer, services=services)
    if again.harness != header.harness:
        return Difference(-1, "harness hash", header.harness, again.harness)
    person = {"inbox": RecordedInbox(session), "approver": RecordedApprover(session)}
    agent = build_agent(settings, policy, sandbox, facts, renderer=renderer, services=services, **person)
    outcome = await agent.run()
    return compare(session, outcome.session)


def compare(recorded: Session, replayed: Session) -> Difference | None:
    """The first difference of two sessions, times left aside, and what is learnt later."""
    then, now = ([entry for entry in s.entries if entry.type not in _LATER] for s in (recorded, replayed))
    for old, new in zip(then, now, strict=False):
        if (difference := _compare(old, new)) is not None:
            return difference
    if len(then) != len(now):
        return Difference(min(len(then), len(now)), "number of entries", len(then), len(now))
    return None


def _compare(old: Entry, new: Entry) -> Difference | None:
    if new.type == "fault" and old.type != "fault":
        return Difference(old.id, old.type, "an entry", new.data["message"])
    if (old.type, old.parent) != (new.type, new.parent):
        return Difference(old.id, "type and parent", (old.type, old.parent), (new.type, new.parent))
    for key in _COMPARED:
        then, now = old.data.get(key), new.data.get(key)
        if key == "counters" and then is not None and now is not None:
            then, now = _lasting(then, then), _lasting(now, then)
        if then != now:
            return Difference(old.id, key, then, now)
    if (old.tokens is None) != (new.tokens is None):
        return Difference(old.id, "has tokens", old.tokens is not None, new.tokens is not None)
    for key in ("ids", "lead", "logprobs", "versions") if old.tokens is not None else ():
        then, now = getattr(old.tokens, key), getattr(new.tokens, key)
        if then != now:
            return Difference(old.id, f"tokens' {key}", then, now)
    return None


def _lasting(counters: dict[str, float], recorded: dict[str, float]) -> dict[str, float]:
    """The counters that can be equal: those the recording has (later versions count more), without seconds."""
    return {name: value for name, value in counters.items() if name in recorded and not name.endswith("_s")}
