"""One request without a terminal session: prints progress or events, and returns an exit status.

Ctrl-C stops the turn, and everything is recorded. A second Ctrl-C cancels at once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from etude.agent.app.chat_session import ChatSession, SessionStart, UserChannel, begin_session, resume_session
from etude.agent.app.errors import INFRA, exit_code
from etude.agent.app.events import Event, EventStream, Sink, notice
from etude.agent.app.extensions import ExtensionOptions, Extensions
from etude.agent.app.inbox_file import InboxReader
from etude.agent.app.model import ModelChoice
from etude.agent.app.runtime import open_runtime
from etude.agent.app.workspace_access import WorkspaceAccess
from etude.agent.harness.approval import ApprovalPolicy, Approver
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.presets.preset import preset_of
from etude.agent.policy.protocol import PolicyError
from etude.core.events.stopping import SIGNALS, handled_in_loop
from etude.sandbox.errors import InfraError


@dataclass(frozen=True)
class AgentJob:
    """One invocation of the agent. `session` is a session to resume. `control` is the folder of the inbox file of a background agent."""

    start: SessionStart
    model: ModelChoice
    workspace: WorkspaceAccess
    approval: ApprovalPolicy = "never"
    extensions: ExtensionOptions = field(default_factory=ExtensionOptions)
    session: Path | None = None
    control: Path | None = None


@dataclass
class TurnTracker:
    """How the last request ended, and whether the agent has been idle since."""

    reason: str = ""
    idle: bool = False

    def __call__(self, event: Event) -> None:
        if event["type"] in ("turn.completed", "turn.failed"):
            self.reason = event.get("reason") or event["error"]["reason"]
            self.idle = True
        elif event["type"] == "turn.started":
            self.idle = False


async def run_headless(job: AgentJob, sink: Sink) -> int:
    """Run the job and return the exit status. Raises AppError for a job that can't start."""
    tracker = TurnTracker()

    def on_event(event: Event) -> None:
        tracker(event)
        sink(event)

    inbox = Inbox()
    user = UserChannel(inbox, Approver(job.approval), lambda settings: EventStream(preset_of(settings), on_event))

    def report(line: str) -> None:
        sink(notice(line))

    async with open_runtime(job.model, job.workspace, job.extensions.signals, report) as runtime:
        settings = runtime.settings(job.session)
        extensions = await Extensions.open(job.extensions, job.workspace.folder, settings, report)
        try:
            if job.session is None:
                chat = begin_session(job.start, runtime, extensions, user)
            else:
                chat = resume_session(job.session, job.start.request, runtime, extensions, user)
            sink({"type": "thread.started", "thread_id": chat.session_id, "session": str(chat.file)})
            return await _run_agent(chat, inbox, job, tracker)
        finally:
            await extensions.close()


async def _run_agent(chat: ChatSession, inbox: Inbox, job: AgentJob, tracker: TurnTracker) -> int:
    """Run the agent until its inbox is closed and every request is answered."""
    control = InboxReader(job.control, inbox) if job.control else None
    if control is None:
        inbox.close()  # the answer to the one request ends the agent; it still accepts a stop
    running = asyncio.ensure_future(chat.agent.run())
    listening = asyncio.ensure_future(control.listen(lambda: tracker.idle)) if control else None
    with handled_in_loop((signal.SIGINT, *SIGNALS), lambda number: _stop(inbox, running)):
        try:
            await running
        except (PolicyError, InfraError):
            return INFRA  # reported as an `error` event
        finally:
            if listening is not None:
                listening.cancel()
    return exit_code(tracker.reason)


def _stop(inbox: Inbox, running: asyncio.Future[Any]) -> None:
    """Handle a signal: the first stops the turn, the second cancels the run."""
    if inbox.stopping:
        running.cancel()
    inbox.say("stop")
    inbox.close()


def json_lines(file: TextIO) -> Sink:
    """Write every event as one line, unbuffered."""

    def write(event: Event) -> None:
        file.write(json.dumps(event, ensure_ascii=False) + "\n")
        file.flush()

    return write


def plain_text(out: TextIO, progress: Callable[[Event], None]) -> Sink:
    """Write the answer to `out`, and everything else to `progress`."""

    def write(event: Event) -> None:
        progress(event)
        if event["type"] == "turn.completed" and event["message"]:
            out.write(event["message"].rstrip("\n") + "\n")
            out.flush()

    return write


def _with_notices(sink: Sink) -> Sink:
    """Print notices and retries to stderr too, because people don't read a stream of JSON events."""
    from etude.agent.app.event_printer import plain, retry_text

    def write(event: Event) -> None:
        sink(event)
        if event["type"] == "notice":
            print(plain(event["message"]), file=sys.stderr, flush=True)
        elif event["type"] == "retry":
            print(retry_text(event), file=sys.stderr, flush=True)

    return write


def standard_sink(as_json: bool) -> Sink:
    """The sink for the streams of this process."""
    if as_json:
        return _with_notices(json_lines(sys.stdout))
    from rich.console import Console

    from etude.agent.app.event_printer import EventPrinter

    return plain_text(sys.stdout, EventPrinter(Console(stderr=True), answers=False))
