"""One request without a person at the terminal: progress or events as it works, an exit status at the end.

Ctrl-C stops the turn and ends well, with everything recorded; a second one breaks off.
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

from etude.agent.app.chat_session import Ask, Person, Talk, begin, resume
from etude.agent.app.errors import INFRA, exit_code
from etude.agent.app.events import Event, Events, Sink, notice
from etude.agent.app.extensions import Offers, Wanted
from etude.agent.app.inbox_file import Control
from etude.agent.app.model import Choice
from etude.agent.app.runtime import open_desk
from etude.agent.app.workspace_access import Place
from etude.agent.harness.approval import ApprovalPolicy, Approver
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.presets.preset import preset_of
from etude.agent.policy.protocol import PolicyError
from etude.core.events.stopping import SIGNALS, handled_in_loop
from etude.sandbox.errors import InfraError


@dataclass(frozen=True)
class Job:
    """All that a headless run is given. `session`: one to go on with. `control`: a folder through which others speak to it."""

    ask: Ask
    choice: Choice
    place: Place
    approval: ApprovalPolicy = "never"
    wanted: Wanted = field(default_factory=Wanted)
    session: Path | None = None
    control: Path | None = None


@dataclass
class Ends:
    """How the last request ended, and whether the agent is idle since."""

    reason: str = ""
    idle: bool = False

    def __call__(self, event: Event) -> None:
        if event["type"] in ("turn.completed", "turn.failed"):
            self.reason = event.get("reason") or event["error"]["reason"]
            self.idle = True
        elif event["type"] == "turn.started":
            self.idle = False


async def run_headless(job: Job, sink: Sink) -> int:
    """The exit status. Raises FaceError for what can't be begun."""
    ends = Ends()

    def told(event: Event) -> None:
        ends(event)
        sink(event)

    inbox = Inbox()
    person = Person(inbox, Approver(job.approval), lambda settings: Events(preset_of(settings), told))

    def report(line: str) -> None:
        sink(notice(line))

    async with open_desk(job.choice, job.place, job.wanted.signals, report) as desk:
        settings = desk.settings(job.session)
        offers = await Offers.open(job.wanted, job.place.folder, settings, report)
        try:
            if job.session is None:
                talk = begin(job.ask, desk, offers, person)
            else:
                talk = resume(job.session, job.ask.request, desk, offers, person)
            sink({"type": "thread.started", "thread_id": talk.session_id, "session": str(talk.file)})
            return await _work(talk, inbox, job, ends)
        finally:
            await offers.close()


async def _work(talk: Talk, inbox: Inbox, job: Job, ends: Ends) -> int:
    """Until nobody has anything more to say."""
    control = Control(job.control, inbox) if job.control else None
    if control is None:
        inbox.close()  # the answer to the one request ends it; stop is still heard
    running = asyncio.ensure_future(talk.agent.run())
    listening = asyncio.ensure_future(control.listen(lambda: ends.idle)) if control else None
    with handled_in_loop((signal.SIGINT, *SIGNALS), lambda number: _stop(inbox, running)):
        try:
            await running
        except (PolicyError, InfraError):
            return INFRA  # told as an `error` event
        finally:
            if listening is not None:
                listening.cancel()
    return exit_code(ends.reason)


def _stop(inbox: Inbox, running: asyncio.Future[Any]) -> None:
    """What a signal does: it stops the turn; the second one cancels."""
    if inbox.stopping:
        running.cancel()
    inbox.say("stop")
    inbox.close()


def json_lines(file: TextIO) -> Sink:
    """Every event on a line of its own, at once."""

    def write(event: Event) -> None:
        file.write(json.dumps(event, ensure_ascii=False) + "\n")
        file.flush()

    return write


def plain_text(out: TextIO, progress: Callable[[Event], None]) -> Sink:
    """The answer to `out`, all else to `progress`."""

    def write(event: Event) -> None:
        progress(event)
        if event["type"] == "turn.completed" and event["message"]:
            out.write(event["message"].rstrip("\n") + "\n")
            out.flush()

    return write


def _with_notices(sink: Sink) -> Sink:
    """What a person should know stands on stderr too: nobody reads a stream of events by eye."""
    from etude.agent.app.event_printer import plain, retried

    def write(event: Event) -> None:
        sink(event)
        if event["type"] == "notice":
            print(plain(event["message"]), file=sys.stderr, flush=True)
        elif event["type"] == "retry":
            print(retried(event), file=sys.stderr, flush=True)

    return write


def standard(as_json: bool) -> Sink:
    """The sink of this process' own streams."""
    if as_json:
        return _with_notices(json_lines(sys.stdout))
    from rich.console import Console

    from etude.agent.app.event_printer import Teller

    return plain_text(sys.stdout, Teller(Console(stderr=True), answers=False))
