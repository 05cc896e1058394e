"""The rules that flag turns of a session: all hints of a session, kept with its rollout, and those that a step learns from.

Some hints are for calls that could not be made: an answer that can't be read, a tool that does not exist, arguments that it does not take.
The others are for what was forgotten: to-dos left open at the end, files read again that had not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from etude.agent.chat.renderer import Renderer
from etude.agent.metrics import facts as fact
from etude.agent.metrics.of_session import todos_of, tool_names
from etude.core.trace.entry import Entry
from etude.core.trace.message import CUT_OFF, Message, ToolCall
from etude.core.trace.segment import Rollout
from etude.core.trace.session import Session

# A hint: the turn that is flagged, by which rule, and the hint's text.


Kind = Literal["malformed_turn", "unknown_tool", "invalid_arguments", "unfinished_todos", "repeated_read"]


@dataclass(frozen=True)
class Hint:
    """`entry` is the flagged completion's number in the session."""

    entry: int
    kind: Kind
    text: str


# Where a session's turns lie in its token segments, and a hint's own tokens: what `learn/train/feedback.py` needs of
# a flagged turn.
#
# A hint is rendered as a message of the user's and belongs in front of the generation prompt, behind all that the
# turn had seen. It is kept with the rollout as plain numbers, for the session is gone when the step is trained.


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


def place_hints(hints: Iterable[Hint], session: Session, renderer: Renderer) -> list[dict[str, Any]]:
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


# A session's turns with their calls and the answers that these got: what hints are read from.


@dataclass(frozen=True)
class AnsweredCall:
    """One call and its answer."""

    call: ToolCall
    text: str = ""
    failed: bool = False
    facts: dict[str, float] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def malformed(self) -> bool:
        """It was refused before it ran."""
        return bool(self.facts.get(fact.MALFORMED))


@dataclass(frozen=True)
class HintTurn:
    """One answer of the policy; `entry` is its completion's number in the session."""

    entry: int
    message: Message
    calls: tuple[AnsweredCall, ...]


def turns_of(session: Session) -> Iterator[HintTurn]:
    """In order, self-summaries left aside. A call that was never answered is left out."""
    answers: dict[str, list[Entry]] = {}
    for entry in reversed(session.of("tool_result")):
        answers.setdefault(entry.data.get("call_id") or "", []).append(entry)
    summary = False
    for entry in session.of("message", "completion"):
        if entry.type == "message":
            summary = bool(entry.data.get("summary"))
            continue
        message = Message.from_json(entry.data.get("message") or {"role": "assistant", "text": ""})
        if not summary:
            called = [_called(call, answers[call.id].pop()) for call in message.calls if answers.get(call.id)]
            yield HintTurn(entry.id, message, tuple(called))
        summary = False


def _called(call: ToolCall, answer: Entry) -> AnsweredCall:
    data: dict[str, Any] = answer.data
    failed = bool(data["failed"])
    recorded = data.get("facts")
    facts = dict(fact.assume_facts(call, failed=failed) if recorded is None else recorded)
    return AnsweredCall(call, data.get("text", ""), failed, facts, tuple(data.get("reads", ())))


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
            takes = _usage(refused.call.name, offered.get(refused.call.name, {}))
            yield Hint(turn.entry, "invalid_arguments", f"Reminder: {takes} Not so: {objection}")


def _schemas(session: Session) -> dict[str, dict[str, Any]]:
    """Parameters by tool, as the session's header has them."""
    rows = session.header.harness_facts.get("schemas") or session.header.harness_facts.get("tools") or ()
    functions = [row.get("function", row) for row in rows if isinstance(row, dict)]
    return {one["name"]: one.get("parameters") or {} for one in functions if one.get("name")}


def _usage(name: str, parameters: dict[str, Any]) -> str:
    required = set(parameters.get("required", ()))
    takes = [one if one in required else f"{one} (may be left out)" for one in parameters.get("properties", {})]
    return f"{name} takes {', '.join(takes)}." if takes else f"{name} takes no arguments."


def unfinished_todos(session: Session) -> Iterator[Hint]:
    """One, for the turn that ended the work, if to-dos were open then. A session that was cut off has none: no turn ended it."""
    turns, still = list(turns_of(session)), todos_of(session).open
    if not turns or not still:
        return
    last = turns[-1]
    if last.message.problem is None and (
        not last.message.calls or any(one.name == "done" for one in last.message.calls)
    ):
        items = "; ".join(still)
        yield Hint(
            last.entry,
            "unfinished_todos",
            f"Reminder: To-dos still open: {items}. Finish or cancel them before you end.",
        )


def repeated_read(session: Session) -> Iterator[Hint]:
    """One for each turn that read a file again with the same arguments, the file not changed since (`docs/counters.md`, repeated_reads)."""
    shown: dict[str, set[str]] = {}  # path -> read calls answered since it last changed
    for turn in turns_of(session):
        again: list[str] = []
        for one in turn.calls:
            if fact.kind(one.call.name) == "shell":
                shown.clear()  # it may have changed any file
            again += _read(one, shown)
            for path in fact.paths_edited(one.call, one.facts):
                shown.pop(path, None)
        if again:
            files = ", ".join(dict.fromkeys(again))
            yield Hint(turn.entry, "repeated_read", f"Reminder: You have read {files} already and it has not changed.")


def _read(one: AnsweredCall, shown: dict[str, set[str]]) -> list[str]:
    """The files that the call showed, if all of them were shown by the same call before."""
    key = json.dumps([one.call.name, one.call.arguments], sort_keys=True, default=str)
    paths = () if one.failed else fact.paths_read(one.call, one.reads)
    known = bool(paths) and all(key in shown.get(path, ()) for path in paths)
    for path in paths:
        shown.setdefault(path, set()).add(key)
    return list(paths) if known else []


# In the order in which they go before each other at one turn.
RULES: tuple[Callable[[Session], Iterator[Hint]], ...] = (
    malformed_turn, unknown_tool, invalid_arguments, unfinished_todos, repeated_read,
)  # fmt: skip


def hints_of(session: Session) -> list[Hint]:
    """By all rules."""
    return [hint for rule in RULES for hint in rule(session)]


def kept_hints(session: Session, renderer: Renderer) -> list[dict[str, Any]]:
    """For `Rollout.info["hints"]`, JSON values. Raises Unplaced."""
    return place_hints(hints_of(session), session, renderer)


def choose_turns(rollouts: Sequence[Rollout], most: int) -> list[tuple[Rollout, dict[str, Any]]]:
    """At most `most` flagged turns: of every rollout the first, then of every rollout the second, and so on. Order is fixed."""
    rows = [(place, r, hint) for r, one in enumerate(rollouts) for place, hint in enumerate(one.info.get("hints", ()))]
    return [(rollouts[r], hint) for _, r, hint in sorted(rows, key=lambda row: row[:2])[:most]]
