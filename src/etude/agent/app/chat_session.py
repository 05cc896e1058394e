"""One session of use: built with the harness' one constructor, written line by line where sessions of use lie, taken up again.

A session keeps what it takes to go on: the model's address and name (never a key), its settings, its folder.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from etude.agent.app.errors import BadUse, OutOfReach
from etude.agent.app.extensions import Offers
from etude.agent.app.journal import UndoJournal
from etude.agent.app.model import Choice
from etude.agent.app.runtime import Desk
from etude.agent.app.workspace_access import Place, surroundings
from etude.agent.git_links.home import sessions_home
from etude.agent.harness.agent import Agent, build_agent
from etude.agent.harness.approval import Approver
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.instructions import find_instructions, rendered
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.agent.harness.watcher import Watcher
from etude.core.trace.entry import Header
from etude.core.trace.session import Session
from etude.core.trace.writer import SessionBusy, SessionWriter


@dataclass(frozen=True)
class Talk:
    """A session that is open for writing, and the agent that goes on with it. `file` is where it lies."""

    file: Path
    recorder: SessionWriter
    agent: Agent
    journal: UndoJournal

    @property
    def session_id(self) -> str:
        return self.recorder.session.header.session_id


@dataclass(frozen=True)
class Ask:
    """What a talk is begun with. `session_id`: None makes one up."""

    request: str
    test_command: tuple[str, ...] = ()
    session_id: str | None = None


class Eyes(Watcher, Protocol):
    """Who looks on, and sees what edits replaced."""

    def wrote(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """A tool changed a file; the session's `edit` entry follows."""
        ...


@dataclass(frozen=True)
class Person:
    """How whoever the agent works for is heard, asked and told. `eyes` are made for the session's settings."""

    inbox: Inbox
    approver: Approver
    eyes: Callable[[HarnessSettings], Eyes]


def begin(ask: Ask, desk: Desk, offers: Offers, person: Person) -> Talk:
    """A new session. Raises OutOfReach where it can't be written."""
    settings = offers.over(desk.model.settings)
    facts = _facts(ask, settings, desk.place, offers.report)
    session_id = ask.session_id or new_id()
    header = session_header(
        settings,
        desk.model.policy,
        facts,
        renderer=desk.model.renderer,
        session_id=session_id,
        services=offers.services,
    )
    kept = {**header.facts, "workspace": str(desk.place.folder)}
    header = replace(header, facts=kept, recipe={"model": desk.choice.to_json()})
    file = sessions_home() / f"{session_id}.jsonl"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        recorder = SessionWriter(file, header, every="line")
    except OSError as error:
        raise OutOfReach(
            f"the session can't be written to {file} ({error}); set ETUDE_SESSIONS to a folder that can"
        ) from error
    return _talk(file, recorder, facts, settings, desk, offers, person, None)


def resume(file: Path, request: str, desk: Desk, offers: Offers, person: Person) -> Talk:
    """A session that ended, or was killed, with a further request. Its preset stays; effort, limits and what is on offer are the new
    ones, and recorded where they differ. Raises BadUse for one that is in use or was held with another kind of model."""
    try:
        recorder = SessionWriter.resume(file, every="line")
    except SessionBusy as error:
        raise BadUse(f"{file.stem} is in use: attach to it, or wait until it has ended") from error
    header = recorder.session.header
    effort = desk.choice.effort
    changes = {"effort": effort, "max_turns": desk.model.settings.max_turns}
    settings = offers.over(HarnessSettings.model_validate(header.settings).model_copy(update=changes))
    if desk.model.policy.takes_tokens != header.takes_tokens:
        raise BadUse(f"{file.stem} was held with another kind of model ({header.policy}); begin a new session")
    facts = replace(TaskFacts.from_json(header.task_id, header.facts), instruction=request)
    talk = _talk(file, recorder, facts, settings, desk, offers, person, recorder.session)
    if effort != effort_of(recorder.session):
        recorder.append("effort", {"effort": effort})
    return talk


def _talk(
    file: Path, recorder: SessionWriter, facts: TaskFacts, settings: HarnessSettings, desk: Desk, offers: Offers, person: Person,
    resumed: Session | None,
) -> Talk:  # fmt: skip
    eyes = person.eyes(settings)
    journal = UndoJournal(file, lambda: len(recorder.session.entries))

    def wrote(path: str, before: bytes | None, after: bytes | None) -> None:
        journal(path, before, after)
        eyes.wrote(path, before, after)

    agent = build_agent(
        settings, desk.model.policy, desk.operations, facts, renderer=desk.model.renderer, recorder=recorder,
        services=offers.services, journal=wrote, inbox=person.inbox, approver=person.approver, watcher=eyes, resumed=resumed,
    )  # fmt: skip
    return Talk(file, recorder, agent, journal)


def _facts(ask: Ask, settings: HarnessSettings, place: Place, report: Callable[[str], None]) -> TaskFacts:
    """A trained vocabulary has no words for a system prompt: it gets the request alone. `report` gets a line for each AGENTS.md
    that is cut or refused."""
    if not preset_of(settings).skinned:
        return TaskFacts("", ask.request, ask.test_command)
    found = find_instructions(place.folder)
    for problem in found.problems:
        report(problem)
    instructions = rendered(found.files)
    return TaskFacts("", ask.request, ask.test_command, instructions=instructions, surroundings=surroundings(place))


def new_id() -> str:
    """Begins with the time, so that a list by name is a list by age."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def effort_of(session: Session) -> str:
    """What was asked for last."""
    changes = session.of("effort")
    return changes[-1].data["effort"] if changes else session.header.effort


def choice_of(header: Header) -> Choice:
    """The model that a session was held with. Raises BadUse for one that was not begun here."""
    kept = header.recipe.get("model")
    if not isinstance(kept, dict):
        raise BadUse(f"{header.session_id} does not say which model held it; give --model")
    return Choice.from_json(kept)
