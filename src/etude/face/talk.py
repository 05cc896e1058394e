"""One session of use: built with the harness' one constructor, written line by line where sessions of use lie, taken up again.

A session keeps what it takes to go on: the model's address and name (never a key), its settings, its folder.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path

from etude.face.errors import BadUse, OutOfReach
from etude.face.events import Events, Sink
from etude.face.journal import UndoJournal
from etude.face.model import Choice, Model
from etude.face.place import Place, surroundings
from etude.harness.agent import Agent, build_agent, session_header
from etude.harness.approval import Approver
from etude.harness.inbox import Inbox
from etude.harness.instructions import find_instructions, rendered
from etude.harness.preset import preset_of
from etude.harness.settings import HarnessSettings
from etude.harness.task_facts import TaskFacts
from etude.link.home import read_entries, read_header, session_files, sessions_home
from etude.sandbox.protocol import Operations
from etude.trace.entry import Header
from etude.trace.session import Session
from etude.trace.writer import SessionBusy, SessionWriter

LAST = "last"


@dataclass(frozen=True)
class Talk:
    """A session that is open for writing, and the agent that goes on with it. `file` is where it lies."""

    file: Path
    recorder: SessionWriter
    agent: Agent
    events: Events
    journal: UndoJournal

    @property
    def session_id(self) -> str:
        return self.recorder.session.header.session_id


@dataclass(frozen=True)
class Ask:
    """What a talk is begun with."""

    request: str
    test_command: tuple[str, ...] = ()
    session_id: str | None = None


def begin(
    ask: Ask,
    choice: Choice,
    model: Model,
    place: Place,
    operations: Operations,
    inbox: Inbox,
    approver: Approver,
    sink: Sink,
) -> Talk:
    """A new session."""
    facts = _facts(ask, model.settings, place)
    session_id = ask.session_id or new_id()
    header = session_header(model.settings, model.policy, facts, renderer=model.renderer, session_id=session_id)
    kept = {**header.facts, "workspace": str(place.folder)}
    header = replace(header, facts=kept, recipe={"model": choice.to_json()})
    file = sessions_home() / f"{session_id}.jsonl"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        recorder = SessionWriter(file, header, every="line")
    except OSError as error:
        raise OutOfReach(
            f"the session can't be written to {file} ({error}); set ETUDE_SESSIONS to a folder that can"
        ) from error
    return _talk(file, recorder, facts, model.settings, model, operations, (inbox, approver), sink, None)


def resume(
    file: Path, request: str, choice: Choice, model: Model, place: Place, operations: Operations, inbox: Inbox,
    approver: Approver, sink: Sink,
) -> Talk:  # fmt: skip
    """A session that ended, or was killed, with a further request. Its preset stays; effort and limits are the new ones."""
    try:
        recorder = SessionWriter.resume(file, every="line")
    except SessionBusy as error:
        raise BadUse(f"{file.stem} is in use: attach to it, or wait until it has ended") from error
    header = recorder.session.header
    kept = HarnessSettings.model_validate(header.settings)
    settings = kept.model_copy(update={"effort": choice.effort, "max_turns": model.settings.max_turns})
    if model.policy.takes_tokens != header.takes_tokens:
        raise BadUse(f"{file.stem} was held with another kind of model ({header.policy}); begin a new session")
    facts = replace(TaskFacts.from_json(header.task_id, header.facts), instruction=request)
    talk = _talk(file, recorder, facts, settings, model, operations, (inbox, approver), sink, recorder.session)
    if choice.effort != effort_of(recorder.session):
        recorder.append("effort", {"effort": choice.effort})
    return talk


def _talk(
    file: Path, recorder: SessionWriter, facts: TaskFacts, settings: HarnessSettings, model: Model, operations: Operations,
    person: tuple[Inbox, Approver], sink: Sink, resumed: Session | None,
) -> Talk:  # fmt: skip
    events = Events(preset_of(settings), sink)
    journal = UndoJournal(file, lambda: len(recorder.session.entries))

    def wrote(path: str, before: bytes | None, after: bytes | None) -> None:
        journal(path, before, after)
        events.wrote(path, before, after)

    agent = build_agent(
        settings, model.policy, operations, facts, renderer=model.renderer, recorder=recorder, journal=wrote,
        inbox=person[0], approver=person[1], watcher=events, resumed=resumed,
    )  # fmt: skip
    sink({"type": "thread.started", "thread_id": recorder.session.header.session_id, "session": str(file)})
    return Talk(file, recorder, agent, events, journal)


def _facts(ask: Ask, settings: HarnessSettings, place: Place) -> TaskFacts:
    """A trained vocabulary has no words for a system prompt: it gets the request alone."""
    if not preset_of(settings).skinned:
        return TaskFacts("", ask.request, ask.test_command)
    told = rendered(find_instructions(place.folder))
    return TaskFacts("", ask.request, ask.test_command, instructions=told, surroundings=surroundings(place))


def new_id() -> str:
    """Begins with the time, so that a list by name is a list by age."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def effort_of(session: Session) -> str:
    """What was asked for last."""
    changes = session.of("effort")
    return changes[-1].data["effort"] if changes else session.header.effort


def find(named: str, folder: Path) -> tuple[Path, Header]:
    """The session of this id (or the beginning of one), or the last that worked in the folder. Raises BadUse."""
    home = sessions_home()
    files = session_files(home) if home.is_dir() else []
    headers = [(file, read_header(file)) for file in files]
    if named == LAST:
        here = [found for found in headers if found[1].facts.get("workspace") == str(folder.resolve())]
        if not here:
            raise BadUse(f"no session worked in {folder} yet; begin one, or name one of `etude session list`")
        return max(here, key=lambda found: found[0].stat().st_mtime)
    exact = [found for found in headers if found[1].session_id == named]
    found = exact or [found for found in headers if found[1].session_id.startswith(named)]
    if len(found) != 1:
        told = f"{len(found)} sessions begin with {named!r}" if found else f"no session is called {named!r}"
        raise BadUse(f"{told}; `etude session list` shows them")
    return found[0]


def choice_of(header: Header) -> Choice:
    """The model that a session was held with. Raises BadUse for one that was not begun here."""
    kept = header.recipe.get("model")
    if not isinstance(kept, dict):
        raise BadUse(f"{header.session_id} does not say which model held it; give --model")
    return Choice.from_json(kept)


def last_words(file: Path) -> str:
    """What the agent said last in a session; nothing where it only called tools."""
    _, entries = read_entries(file)
    said = [entry.data["message"]["text"] for entry in entries if entry.type == "completion"]
    return next((text for text in reversed(said) if text), "")
