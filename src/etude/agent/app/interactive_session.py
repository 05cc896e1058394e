"""The conversation of one user with the agent: it starts with the first request, can be resumed, inspected and undone.

A terminal or an editor shows it; this module prints nothing. Extensions may take a while to open, because servers start and the user is
asked for approval. So the first request waits for them, and messages that arrive meanwhile are queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from etude.agent.app.chat_session import (
    ChatSession,
    EditObserver,
    SessionStart,
    UserChannel,
    begin_session,
    resume_session,
)
from etude.agent.app.errors import UsageError
from etude.agent.app.events import Event, changes
from etude.agent.app.extensions import Extensions
from etude.agent.app.journal import UndoJournal
from etude.agent.app.runtime import SessionRuntime
from etude.agent.app.undo import UndoResult, undo_edits
from etude.agent.harness.approval import Approver
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.observer import Part
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import RetryWait
from etude.core.trace.entry import Effort, Entry

DeliveryKind = Literal["request", "steer", "queue"]


@dataclass
class _RunningAgent:
    """The current agent. `session` is None until it has started."""

    inbox: Inbox
    task: asyncio.Future[Any] | None = None
    session: ChatSession | None = None

    @property
    def is_over(self) -> bool:
        return self.task is None or self.task.done()


class InteractiveSession:
    """Sends the user's messages to the agent, and starts, stops and resumes it.

    `opening` opens the extensions: with `open_extensions`, or with the first request. `on_failure` gets an error that ended the agent.
    `session` is a session to resume. `request` names the test command and the id of a new session.
    """

    def __init__(
        self,
        runtime: SessionRuntime,
        opening: Coroutine[Any, Any, Extensions],
        approver: Approver,
        observer: Callable[[HarnessSettings], EditObserver],
        failed: Callable[[BaseException], None],
        *,
        session: Path | None = None,
        start: SessionStart | None = None,
    ) -> None:
        self.runtime, self.approver, self.file = runtime, approver, session
        self.is_idle = True  # the agent waits, or there is none
        self._opening, self._observer, self._on_failure = opening, observer, failed
        self._ask = start or SessionStart("")
        self._extensions: asyncio.Task[Extensions] | None = None
        self._agent: _RunningAgent | None = None
        self._note = ""

    @property
    def has_queued_text(self) -> bool:
        """Whether messages are queued that the agent takes up after its current answer."""
        return self._agent is not None and self._agent.inbox.waiting

    def open_extensions(self) -> None:
        """Start to open the extensions, if that has not started yet."""
        self._extensions = self._extensions or asyncio.ensure_future(self._opening)

    def send(self, words: str, *, queued: bool = False) -> DeliveryKind:
        """Send a message to the agent, and return how it is delivered."""
        self.open_extensions()
        work, was_idle = self._agent, self.is_idle
        self.is_idle = False
        if work is None or work.is_over:
            self._start_agent(self._with_note(words))
            return "request"
        steers = not was_idle and not queued
        work.inbox.say("steer" if steers else "queue", words if steers else self._with_note(words))
        return "request" if was_idle else "steer" if steers else "queue"

    def _start_agent(self, request: str) -> _RunningAgent:
        """Start another agent for the session. Without a request it does what its inbox says."""
        work = self._agent = _RunningAgent(Inbox())
        work.task = asyncio.ensure_future(self._run(work, request))
        work.task.add_done_callback(self._on_agent_done)
        return work

    def stop(self) -> bool:
        """Interrupt the current turn. Return whether there was one."""
        if self._agent is None or self.is_idle:
            return False
        self._agent.inbox.say("stop")
        return True

    def compact(self, words: str) -> None:
        """Have the agent summarize its context before its next turn, or at once if it is idle. Resume the session if its agent has ended.

        Raises UsageError where there is nothing to summarize.
        """
        work = self._agent
        if (
            (work is None or work.is_over)
            and self.file is None
            or (work is not None and work.session is None and not work.is_over)
        ):
            raise UsageError("nothing to sum up yet: say something first")
        self.is_idle = False
        if work is None or work.is_over:
            self.open_extensions()
            work = self._start_agent("")
        work.inbox.summarize(words)

    async def undo(self, everything: bool) -> UndoResult:
        """Undo edits. The next request informs the agent. Raises UsageError (UndoError)."""
        chat = self._idle_session()
        if chat is None:
            raise UsageError("nothing to take back yet")
        done = await undo_edits(
            chat.journal, chat.recorder.session.entries, self.runtime.operations, everything=everything
        )
        chat.recorder.append("undo", dict(done.data))
        chat.recorder.flush()
        self._note = f"(The person took back your edits of {', '.join(done.paths)}: the files are as they were before.)"
        return done

    def changes(self) -> Sequence[Event]:
        """What the session's tools changed in each file, as `file_change` items."""
        return changes(UndoJournal(self.file)) if self.file is not None else ()

    def servers(self) -> list[str]:
        """One line for each MCP server, and one for each that could not be started."""
        if self._extensions is None or not self._extensions.done():
            return ["servers start with the session"]
        return self._extensions.result().describe_servers() or [
            "no MCP servers: docs/protocols.md says how to name some"
        ]

    async def set_effort(self, effort: Effort) -> None:
        """Set the effort from the next request on, which resumes the session. Raises UsageError while the agent works."""
        self._idle_session()
        await self.close()
        model = self.runtime.model
        settings = model.settings.model_copy(update={"effort": effort})
        choice = replace(self.runtime.choice, effort=effort)
        self.runtime = replace(self.runtime, choice=choice, model=replace(model, settings=settings))

    def status(self) -> list[str]:
        choice, model = self.runtime.choice, self.runtime.model
        rows = [f"model {model.policy.name}, effort {choice.effort}, approval {self.approver.policy}"]
        rows += [f"session {self.file}"] if self.file is not None else []
        chat = self._agent.session if self._agent is not None else None
        if chat is not None:
            turns = len(chat.recorder.session.of("completion"))
            rows.append(f"{turns} turns, {len(chat.journal.edits())} edits that can be taken back")
        return rows

    async def close(self) -> None:
        """End the agent, and stop its current turn. The next request resumes the session."""
        work, self._agent = self._agent, None
        if work is None or work.task is None:
            return
        if work.session is None and self._extensions is not None and not self._extensions.done():
            work.task.cancel()  # it has not started
        elif not work.task.done():
            if not self.is_idle:
                work.inbox.say("stop")
            work.inbox.close()
        await asyncio.wait((work.task,))

    async def shut_down(self) -> None:
        """End the agent, then its servers, also those that are still starting."""
        await self.close()
        if self._extensions is None:
            self._opening.close()
            return
        self._extensions.cancel()
        await asyncio.wait((self._extensions,))
        if not self._extensions.cancelled() and self._extensions.exception() is None:
            await self._extensions.result().close()

    def _idle_session(self) -> ChatSession | None:
        if not self.is_idle:
            raise UsageError("the agent is at work; stop it first, or wait")
        return self._agent.session if self._agent is not None else None

    async def _run(self, work: _RunningAgent, request: str) -> None:
        """Start or resume the session, and run it until it ends."""
        assert self._extensions is not None  # opened with the first message
        extensions = await asyncio.shield(self._extensions)
        user = UserChannel(work.inbox, self.approver, lambda settings: _IdleTracker(self, self._observer(settings)))
        if self.file is None:
            work.session = begin_session(replace(self._ask, request=request), self.runtime, extensions, user)
        else:
            work.session = resume_session(self.file, request, self.runtime, extensions, user)
        self.file = work.session.file
        await work.session.agent.run()

    def _on_agent_done(self, running: asyncio.Future[Any]) -> None:
        self.is_idle = True
        if not running.cancelled() and (error := running.exception()) is not None:
            self._on_failure(error)

    def _with_note(self, words: str) -> str:
        """The request, after a note about what happened since the agent's last turn."""
        note, self._note = self._note, ""
        return f"{note}\n\n{words}" if note else words


class _IdleTracker:
    """An observer that also keeps `InteractiveSession.is_idle` up to date."""

    def __init__(self, dialogue: InteractiveSession, observer: EditObserver) -> None:
        self._session, self._observer = dialogue, observer
        self.wrote = observer.wrote

    def delta(self, part: Part, piece: str) -> None:
        self._observer.delta(part, piece)

    def entry(self, entry: Entry) -> None:
        if entry.type == "message" and entry.data["role"] == "user" and entry.data.get("delivery") == "queue":
            self._session.is_idle = False
        self._observer.entry(entry)

    def waiting(self, wait: RetryWait) -> None:
        self._observer.waiting(wait)

    def idle(self, reason: str, message: str) -> None:
        self._session.is_idle = True
        self._observer.idle(reason, message)
