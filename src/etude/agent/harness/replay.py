"""Replays a session in a fresh sandbox and compares every entry: same tool results byte for byte, same token ids.

A replay proves that a demonstration is real. It is promise 1 in practice: any program can build the replay with `build_agent` from the
session's header alone.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from etude.agent.chat.renderer import Renderer
from etude.agent.harness.agent import build_agent
from etude.agent.harness.approval import ApprovalDecision, Approver, Effect
from etude.agent.harness.dependencies import AgentDependencies, renderer_for
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox, SummaryRequest, TurnInterrupted
from etude.agent.harness.presets.definition import require_allowed
from etude.agent.harness.presets.preset import harness_hash
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.policy.replay import ReplayPolicy
from etude.core.trace.entry import Entry
from etude.core.trace.message import ToolCall
from etude.core.trace.session import Session
from etude.sandbox.protocol import Operations

# The user of a recorded session, for its replay: sends the same messages at the same turns, and makes the same
# decisions.


T = TypeVar("T")


class RecordedInbox(Inbox):
    """The messages of a recorded session, by the number of turns taken before each.

    A stop during the policy's turn is repeated. The partial work of a stopped tool can't be repeated. A summary that the user requested
    is found by its query, which has a delivery (queue: the agent was idle); the words with it are steering messages.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._turns = 0  # taken so far in the replay; `unless_stopped` sees each one begin
        self._said: dict[int, list[str]] = defaultdict(list)
        self._requests: deque[str | SummaryRequest] = deque()
        self._stops: set[int] = set()
        self._summaries: set[int] = set()
        turns = 0
        for entry in session.of("message", "completion"):
            turns += entry.type == "completion"
            delivery, text = entry.data.get("delivery"), entry.data.get("text", "")
            if entry.data.get("summary") and delivery is not None:
                self._summaries.add(turns) if delivery == "steer" else self._requests.append(SummaryRequest())
            elif delivery == "steer":
                self._said[turns].append(text)
            elif delivery == "queue":
                self._requests.append(text)
            elif delivery == "stop":
                self._stops.add(turns)

    def take_steering(self) -> list[str]:
        return self._said.pop(self._turns, [])

    def summary_asked(self) -> SummaryRequest | None:
        if self._turns not in self._summaries:
            return None
        self._summaries.discard(self._turns)
        return SummaryRequest()

    async def next_request(self) -> str | SummaryRequest | None:
        return self._requests.popleft() if self._requests else None

    async def unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        return await work

    async def turn(self, work: Coroutine[Any, Any, T]) -> T:
        if self._turns in self._stops:
            self._stops.discard(self._turns)
            work.close()
            raise TurnInterrupted
        answer = await work
        self._turns += 1
        return answer


class RecordedApprover(Approver):
    """Repeats the recorded decisions."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._decided = {entry.data["call_id"]: entry.data for entry in session.of("approval")}

    async def rule(self, call: ToolCall, effect: Effect) -> ApprovalDecision:
        row = self._decided.get(call.id)
        if row is None:
            return ApprovalDecision(True)
        asked, decision = row["by"] == "user", row["decision"]
        return ApprovalDecision(
            decision != "denied", row.get("reason", ""), asked=asked, remembered=decision == "always"
        )


# Appended to a session after its end.
_LATER = ("verdict", "link")
# Fields that must be equal. Times, usage and seconds differ between runs.
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


# Bytes of a tool's answer shown with a difference.
SHOWN_BYTES = 60


@dataclass(frozen=True)
class ReplayDifference:
    """The first difference between the replay and the recording."""

    entry: int
    what: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return self.describe("recorded", "replayed")

    def describe(self, first: str, second: str) -> str:
        """The difference in words, with these names for the two sides."""
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


def _settings(session: Session, plugins: Collection[str]) -> HarnessSettings:
    """Raises PluginError for a preset by import path that is none of `plugins`."""
    settings = HarnessSettings.model_validate(session.header.settings)
    remedy = f"replay with --plugin {settings.preset}"
    require_allowed(settings.preset, plugins, f"session {session.header.session_id}", remedy)
    return settings


def matches_harness(session: Session, renderer: Renderer | None, plugins: Collection[str] = ()) -> bool:
    """Whether the current harness with this renderer has the hash in the session's header. Raises PluginError as `replay` does."""
    settings = _settings(session, plugins)
    chat = renderer_for(renderer, settings).fingerprint if renderer else ""
    return harness_hash(settings, chat) == session.header.harness


async def replay(
    session: Session,
    sandbox: Operations,
    *,
    renderer: Renderer | None = None,
    services: AgentServices | None = None,
    plugins: Collection[str] = (),
) -> ReplayDifference | None:
    """Replay the session and return the first difference, or None. The sandbox must hold the task's original files. `plugins`: presets by
    import path that the session may name; raises PluginError for another.

    A session with tokens needs the renderer of its model, also for a scripted expert. Another renderer or another harness is a difference
    at once.
    """
    header = session.header
    settings = _settings(session, plugins)
    facts = TaskFacts.from_json(header.task_id, header.facts)
    policy = ReplayPolicy(session)
    again = session_header(settings, policy, facts, renderer=renderer, services=services)
    if again.harness != header.harness:
        return ReplayDifference(-1, "harness hash", header.harness, again.harness)
    recorded = AgentDependencies(
        sandbox,
        facts,
        renderer=renderer,
        services=services or AgentServices(),
        inbox=RecordedInbox(session),
        approver=RecordedApprover(session),
    )
    outcome = await build_agent(settings, policy, recorded).run()
    return compare(session, outcome.session)


def compare(recorded: Session, replayed: Session) -> ReplayDifference | None:
    """The first difference between two sessions. Times and entries appended after the end are ignored."""
    then, now = ([entry for entry in s.entries if entry.type not in _LATER] for s in (recorded, replayed))
    for old, new in zip(then, now, strict=False):
        if (difference := _compare(old, new)) is not None:
            return difference
    if len(then) != len(now):
        return ReplayDifference(min(len(then), len(now)), "number of entries", len(then), len(now))
    return None


def _compare(old: Entry, new: Entry) -> ReplayDifference | None:
    if new.type == "fault" and old.type != "fault":
        return ReplayDifference(old.id, old.type, "an entry", new.data["message"])
    if (old.type, old.parent) != (new.type, new.parent):
        return ReplayDifference(old.id, "type and parent", (old.type, old.parent), (new.type, new.parent))
    for key in _COMPARED:
        then, now = old.data.get(key), new.data.get(key)
        if key == "counters" and then is not None and now is not None:
            then, now = _lasting(then, then), _lasting(now, then)
        if then != now:
            return ReplayDifference(old.id, key, then, now)
    if (old.tokens is None) != (new.tokens is None):
        return ReplayDifference(old.id, "has tokens", old.tokens is not None, new.tokens is not None)
    for key in ("ids", "lead", "logprobs", "versions") if old.tokens is not None else ():
        then, now = getattr(old.tokens, key), getattr(new.tokens, key)
        if then != now:
            return ReplayDifference(old.id, f"tokens' {key}", then, now)
    return None


def _lasting(counters: dict[str, float], recorded: dict[str, float]) -> dict[str, float]:
    """The comparable counters: those of the recording (later versions count more), without seconds."""
    return {name: value for name, value in counters.items() if name in recorded and not name.endswith("_s")}
