"""Sessions of any teacher as what SFT learns from: their own tokens where they have the student's, else their messages rendered.

A teacher behind an endpoint leaves messages and no tokens, and another family's tokens are none of the student's. Such a session is rendered
turn by turn as the student's harness would have held it: what was said is sampled (logprob 0, version -1, as of a scripted expert), what
was read is context; a new segment begins where the session was summed up, and where the format can't continue the held tokens (promise 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etude.agent.chat.renderer import Renderer, RenderError
from etude.agent.harness.dependencies import renderer_for
from etude.agent.harness.settings import HarnessSettings
from etude.core.trace.builder import SegmentBuilder
from etude.core.trace.completion import SampledTokens
from etude.core.trace.message import Message
from etude.core.trace.reader import read_session
from etude.core.trace.segment import Segment
from etude.core.trace.session import Session
from etude.rollout.collect.tries import FILE

EVENTS = "events.jsonl"


@dataclass(frozen=True)
class LabelledMessage:
    """A message of the conversation; `said`: by the policy."""

    message: Message
    said: bool


def taught(folder: Path, renderer: Renderer) -> Iterator[Segment]:
    """All segments of a folder's sessions, in order of their names. Raises FileNotFoundError for a folder without any, RenderError."""
    for file in session_files(folder):
        try:
            yield from (replace(segment, session=file.stem) for segment in segments(read_session(file), renderer))
        except RenderError as error:
            raise RenderError(f"{file}: this model's format can't hold the session: {error}") from error


def session_files(folder: Path) -> list[Path]:
    """The files of a folder's sessions, by name. Raises FileNotFoundError for a folder without any."""
    files = [file for file in sorted(folder.glob("*.jsonl")) if file.name not in (FILE, EVENTS)]
    if not files:
        raise FileNotFoundError(f"{folder} holds no sessions; `etude session collect` writes them")
    return files


def segments(session: Session, renderer: Renderer) -> list[Segment]:
    """As they were sampled, if by the student's own format; else rendered, with the tools that were declared."""
    if _own(session, renderer):
        return session.segments()
    tools: list[dict[str, Any]] = session.header.harness_facts.get("schemas", [])
    builder = SegmentBuilder()
    for turns in conversations(session):
        _render(turns, builder, renderer, tools)
        builder.begin()
    return builder.segments()


def conversations(session: Session) -> list[list[LabelledMessage]]:
    """The session's segments as messages: each self-summary begins a new one, with the prefix and what it carries over."""
    prefix: list[LabelledMessage] = []
    found: list[list[LabelledMessage]] = [[]]
    opened = False
    for entry in session.entries:
        if entry.type == "completion":
            opened = True
            found[-1].append(LabelledMessage(Message.from_json(entry.data["message"]), True))
        elif entry.type == "message":
            turn = LabelledMessage(Message.from_json({k: v for k, v in entry.data.items() if k != "foreign"}), False)
            found[-1].append(turn)
            if not opened:
                prefix.append(turn)
        elif entry.type == "tool_result":
            found[-1].append(
                LabelledMessage(Message("tool", entry.data["text"], call_id=entry.data.get("call_id")), False)
            )
        elif entry.type == "summary" and (carried := entry.data.get("message")):
            found.append([*prefix, LabelledMessage(Message.from_json(carried), False)])
    return [turns for turns in found if any(turn.said for turn in turns)]


def _own(session: Session, renderer: Renderer) -> bool:
    """Whether it holds tokens of this very format, at the effort and with the thinking it was held at."""
    if not any(entry.tokens is not None for entry in session.entries):
        return False
    settings = HarnessSettings.model_validate(session.header.settings)
    if (served := session.header.facts.get("served_chat")) is not None:  # tokens that an endpoint returned
        return served == renderer.fingerprint
    return session.header.harness_facts.get("chat") == renderer_for(renderer, settings).fingerprint


def _render(
    turns: list[LabelledMessage], builder: SegmentBuilder, renderer: Renderer, tools: Sequence[dict[str, Any]]
) -> None:
    held: list[Message] = []
    new: list[Message] = []
    last: tuple[Message, list[int]] | None = None
    calls = 0
    for turn in turns:
        if not turn.said or turn.message.problem:  # a broken turn can't be rendered as it was said: it teaches nothing
            new.append(turn.message)
            continue
        bridge = renderer.bridge(*last, new, tools) if last is not None else None
        if bridge is not None:
            builder.extend(bridge.ids)
        else:
            builder.prompt(renderer.render([*held, *new], tools))
        ids = renderer.answer(turn.message, first_call=calls)
        builder.sample(SampledTokens(ids, [0.0] * len(ids), [-1] * len(ids)))
        held += [*new, turn.message]
        new, last = [], (turn.message, ids)
        calls += len(turn.message.calls)
