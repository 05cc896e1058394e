"""One session of a user: built with `build_agent`, written line by line into the user's session folder, and resumed.

The session file holds what resuming needs: the model's address and name (never a key), the settings and the folder.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from etude.agent.app.errors import UnavailableError, UsageError
from etude.agent.app.extensions import Extensions
from etude.agent.app.journal import UndoJournal
from etude.agent.app.model import ModelChoice
from etude.agent.app.runtime import SessionRuntime
from etude.agent.app.workspace_access import WorkspaceAccess, describe_surroundings
from etude.agent.git_links.home import sessions_home
from etude.agent.harness.agent import Agent, build_agent
from etude.agent.harness.approval import Approver
from etude.agent.harness.dependencies import AgentDependencies
from etude.agent.harness.header import session_header
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.instructions import find_instructions, render_instructions
from etude.agent.harness.observer import AgentObserver
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.task_facts import TaskFacts
from etude.core.trace.entry import SessionHeader
from etude.core.trace.session import Session
from etude.core.trace.writer import SessionBusy, SessionWriter


@dataclass(frozen=True)
class ChatSession:
    """A session that is open for writing, its file, and its agent."""

    file: Path
    recorder: SessionWriter
    agent: Agent
    journal: UndoJournal

    @property
    def session_id(self) -> str:
        return self.recorder.session.header.session_id


@dataclass(frozen=True)
class SessionStart:
    """The start of a session: first request, test command and id. None generates an id."""

    request: str
    test_command: tuple[str, ...] = ()
    session_id: str | None = None


class EditObserver(AgentObserver, Protocol):
    """An observer that also sees what edits replace."""

    def wrote(self, path: str, before: bytes | None, after: bytes | None) -> None:
        """A tool changed a file; the session's `edit` entry follows."""
        ...


@dataclass(frozen=True)
class UserChannel:
    """How the agent communicates with its user: messages, approvals, and an observer for the session's settings."""

    inbox: Inbox
    approver: Approver
    make_observer: Callable[[HarnessSettings], EditObserver]


def begin_session(
    start: SessionStart, runtime: SessionRuntime, extensions: Extensions, user: UserChannel
) -> ChatSession:
    """Start a new session. Raises UnavailableError if its file can't be written."""
    settings = extensions.apply(runtime.model.settings)
    facts = _facts(start, settings, runtime.place, extensions.report)
    session_id = start.session_id or new_session_id()
    header = session_header(
        settings,
        runtime.model.policy,
        facts,
        renderer=runtime.model.renderer,
        session_id=session_id,
        services=extensions.services,
    )
    kept = {**header.facts, "workspace": str(runtime.place.folder)}
    header = replace(header, facts=kept, recipe={"model": runtime.choice.to_json()})
    file = sessions_home() / f"{session_id}.jsonl"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        recorder = SessionWriter(file, header, every="line")
    except OSError as error:
        raise UnavailableError(
            f"the session can't be written to {file} ({error}); set ETUDE_SESSIONS to a folder that can"
        ) from error
    return _open_session(file, recorder, facts, settings, runtime, extensions, user, None)


def resume_session(
    file: Path, request: str, runtime: SessionRuntime, extensions: Extensions, user: UserChannel
) -> ChatSession:
    """Resume a session that ended or was killed, with a further request.

    It keeps its preset. Effort, limits and extensions are the current ones, and recorded where they differ. Raises UsageError for a
    session that is in use or that ran with another kind of model.
    """
    try:
        recorder = SessionWriter.resume(file, every="line")
    except SessionBusy as error:
        raise UsageError(f"{file.stem} is in use: attach to it, or wait until it has ended") from error
    header = recorder.session.header
    effort = runtime.choice.effort
    changes = {"effort": effort, "max_turns": runtime.model.settings.max_turns}
    settings = extensions.apply(HarnessSettings.model_validate(header.settings).model_copy(update=changes))
    if runtime.model.policy.takes_tokens != header.takes_tokens:
        raise UsageError(f"{file.stem} ran with another kind of model ({header.policy}); begin a new session")
    facts = replace(TaskFacts.from_json(header.task_id, header.facts), instruction=request)
    chat = _open_session(file, recorder, facts, settings, runtime, extensions, user, recorder.session)
    if effort != effort_of(recorder.session):
        recorder.append("effort", {"effort": effort})
    return chat


def _open_session(
    file: Path,
    recorder: SessionWriter,
    facts: TaskFacts,
    settings: HarnessSettings,
    runtime: SessionRuntime,
    extensions: Extensions,
    user: UserChannel,
    resumed: Session | None,
) -> ChatSession:
    observer = user.make_observer(settings)
    journal = UndoJournal(file, lambda: len(recorder.session.entries))

    def wrote(path: str, before: bytes | None, after: bytes | None) -> None:
        journal(path, before, after)
        observer.wrote(path, before, after)

    dependencies = AgentDependencies(
        runtime.operations,
        facts,
        renderer=runtime.model.renderer,
        recorder=recorder,
        services=extensions.services,
        user_journal=wrote,
        inbox=user.inbox,
        approver=user.approver,
        watcher=observer,
        resumed=resumed,
    )
    return ChatSession(file, recorder, build_agent(settings, runtime.model.policy, dependencies), journal)


def _facts(
    start: SessionStart, settings: HarnessSettings, place: WorkspaceAccess, report: Callable[[str], None]
) -> TaskFacts:
    """The facts for the prompt. A preset with a trained vocabulary has no system prompt and gets only the request.

    `report` gets a line for each AGENTS.md that is cut or refused.
    """
    if not preset_of(settings).skinned:
        return TaskFacts("", start.request, start.test_command)
    found = find_instructions(place.folder)
    for problem in found.problems:
        report(problem)
    instructions = render_instructions(found.files)
    return TaskFacts(
        "", start.request, start.test_command, instructions=instructions, surroundings=describe_surroundings(place)
    )


def new_session_id() -> str:
    """A new id. It begins with the time, so that sorting by name sorts by age."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def effort_of(session: Session) -> str:
    """The effort that was set last."""
    changes = session.of("effort")
    return changes[-1].data["effort"] if changes else session.header.effort


def choice_of(header: SessionHeader) -> ModelChoice:
    """The model that a session ran with. Raises UsageError for a session that this app did not start."""
    kept = header.recipe.get("model")
    if not isinstance(kept, dict):
        raise UsageError(f"{header.session_id} does not record its model; give --model")
    return ModelChoice.from_json(kept)
