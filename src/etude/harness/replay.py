"""Replays a session in a fresh sandbox and compares every entry: same tool results byte for byte, same token ids.

This is how demonstrations are proven real, and promise 1 in practice: the replay is built by `build_agent` from the header
alone, by whatever program holds the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etude.chat.renderer import Renderer
from etude.harness.agent import TaskFacts, build_agent, session_header
from etude.harness.settings import HarnessSettings
from etude.policy.replay import ReplayPolicy
from etude.sandbox.protocol import Sandbox
from etude.trace.entry import Entry
from etude.trace.session import Session

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
)


@dataclass(frozen=True)
class Difference:
    """The first place where the replay left the recording."""

    entry: int
    what: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return f"entry {self.entry}, {self.what}: recorded {self.recorded!r}, replayed {self.replayed!r}"


async def replay(session: Session, sandbox: Sandbox, *, renderer: Renderer | None = None) -> Difference | None:
    """None if everything was equal. The sandbox must hold the task's files as they were when the session began.

    A session with tokens needs the renderer of its model; another renderer or another harness is a difference at once.
    """
    header = session.header
    settings = HarnessSettings.model_validate(header.settings)
    facts = TaskFacts(header.task_id, header.facts["instruction"], tuple(header.facts["test_command"]))
    policy = ReplayPolicy(session)
    again = session_header(settings, policy, facts, renderer=renderer)
    if again.harness != header.harness:
        return Difference(-1, "harness hash", header.harness, again.harness)
    outcome = await build_agent(settings, policy, sandbox, facts, renderer=renderer).run()
    return compare(session, outcome.session)


def compare(recorded: Session, replayed: Session) -> Difference | None:
    """The first difference of two sessions, times left aside, and verdicts, which a grader adds later."""
    then, now = ([entry for entry in s.entries if entry.type != "verdict"] for s in (recorded, replayed))
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
        if old.data.get(key) != new.data.get(key):
            return Difference(old.id, key, old.data.get(key), new.data.get(key))
    if _ids(old) != _ids(new):
        return Difference(old.id, "tokens", _ids(old), _ids(new))
    return None


def _ids(entry: Entry) -> tuple | None:
    tokens = entry.tokens
    return (tokens.ids, tokens.lead, tokens.versions) if tokens is not None else None
