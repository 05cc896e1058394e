"""The conversation of one person at one desk: begun with the first request, taken up again where it broke off, looked into, undone.

No word of it is shown here: a terminal or an editor does that. What is on offer may take a while to open (servers start, a person is
asked), so the first request waits for it, and what is said meanwhile is heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from etude.agent.app.chat_session import Ask, Eyes, Person, Talk, begin, resume
from etude.agent.app.errors import BadUse
from etude.agent.app.events import Event, changes
from etude.agent.app.extensions import Offers
from etude.agent.app.journal import UndoJournal
from etude.agent.app.runtime import Desk
from etude.agent.app.undo import Undone, undo
from etude.agent.harness.approval import Approver
from etude.agent.harness.inbox import Inbox
from etude.agent.harness.settings import HarnessSettings
from etude.agent.harness.watcher import Part
from etude.agent.policy.protocol import Wait
from etude.core.trace.entry import Effort, Entry

Heard = Literal["request", "steer", "queue"]


@dataclass
class _Work:
    """The agent that is being talked to; `talk` is None until it has begun."""

    inbox: Inbox
    running: asyncio.Future[Any] | None = None
    talk: Talk | None = None

    @property
    def over(self) -> bool:
        return self.running is None or self.running.done()


class Dialogue:
    """`opening` is what will be on offer, begun with `open` or the first request. `failed` is told what ended the agent but its own end.
    `session` is one to go on with; `ask` names the test command and a new session's id."""

    def __init__(
        self, desk: Desk, opening: Coroutine[Any, Any, Offers], approver: Approver, eyes: Callable[[HarnessSettings], Eyes],
        failed: Callable[[BaseException], None], *, session: Path | None = None, ask: Ask | None = None,
    ) -> None:  # fmt: skip
        self.desk, self.approver, self.file = desk, approver, session
        self.idle = True  # the agent waits, or there is none
        self._opening, self._eyes, self._failed = opening, eyes, failed
        self._ask = ask or Ask("")
        self._offers: asyncio.Task[Offers] | None = None
        self._work: _Work | None = None
        self._note = ""

    @property
    def waiting(self) -> bool:
        """Words are there that the agent goes on with when it has answered."""
        return self._work is not None and self._work.inbox.waiting

    def open(self) -> None:
        """Open what is on offer, if that has not begun."""
        self._offers = self._offers or asyncio.ensure_future(self._opening)

    def say(self, words: str, *, queued: bool = False) -> Heard:
        """How they will be heard."""
        self.open()
        work, was_idle = self._work, self.idle
        self.idle = False
        if work is None or work.over:
            self._begin(self._noted(words))
            return "request"
        steers = not was_idle and not queued
        work.inbox.say("steer" if steers else "queue", words if steers else self._noted(words))
        return "request" if was_idle else "steer" if steers else "queue"

    def _begin(self, request: str) -> _Work:
        """Another agent for the session; without a request it does what its inbox says."""
        work = self._work = _Work(Inbox())
        work.running = asyncio.ensure_future(self._carry(work, request))
        work.running.add_done_callback(self._over)
        return work

    def stop(self) -> bool:
        """Break off what is being done; whether there was anything."""
        if self._work is None or self.idle:
            return False
        self._work.inbox.say("stop")
        return True

    def compact(self, words: str) -> None:
        """The agent sums up what it holds: before its next turn, or at once; a session whose agent has ended is taken up again.
        Raises BadUse where there is nothing."""
        work = self._work
        if (
            (work is None or work.over)
            and self.file is None
            or (work is not None and work.talk is None and not work.over)
        ):
            raise BadUse("nothing to sum up yet: say something first")
        self.idle = False
        if work is None or work.over:
            self.open()
            work = self._begin("")
        work.inbox.summarize(words)

    async def undo(self, everything: bool) -> Undone:
        """Take back edits, and tell the agent with the next request. Raises BadUse (CantUndo)."""
        talk = self._quiet_talk()
        if talk is None:
            raise BadUse("nothing to take back yet")
        done = await undo(talk.journal, talk.recorder.session.entries, self.desk.operations, everything=everything)
        talk.recorder.append("undo", dict(done.data))
        talk.recorder.flush()
        self._note = f"(The person took back your edits of {', '.join(done.paths)}: the files are as they were before.)"
        return done

    def changes(self) -> Sequence[Event]:
        """What the session's tools made of each file, as `file_change` items."""
        return changes(UndoJournal(self.file)) if self.file is not None else ()

    def servers(self) -> list[str]:
        """The MCP servers in lines, and what could not be had."""
        if self._offers is None or not self._offers.done():
            return ["servers start with the session"]
        return self._offers.result().servers() or ["no MCP servers: docs/protocols.md says how to name some"]

    async def set_effort(self, effort: Effort) -> None:
        """From the next request on: the session is closed, and taken up again with it. Raises BadUse while the agent works."""
        self._quiet_talk()
        await self.close()
        model = self.desk.model
        settings = model.settings.model_copy(update={"effort": effort})
        choice = replace(self.desk.choice, effort=effort)
        self.desk = replace(self.desk, choice=choice, model=replace(model, settings=settings))

    def status(self) -> list[str]:
        choice, model = self.desk.choice, self.desk.model
        rows = [f"model {model.policy.name}, effort {choice.effort}, approval {self.approver.policy}"]
        rows += [f"session {self.file}"] if self.file is not None else []
        talk = self._work.talk if self._work is not None else None
        if talk is not None:
            turns = len(talk.recorder.session.of("completion"))
            rows.append(f"{turns} turns, {len(talk.journal.edits())} edits that can be taken back")
        return rows

    async def close(self) -> None:
        """The agent ends; one that works is stopped. The next request takes the session up again."""
        work, self._work = self._work, None
        if work is None or work.running is None:
            return
        if work.talk is None and self._offers is not None and not self._offers.done():
            work.running.cancel()  # it has not begun
        elif not work.running.done():
            if not self.idle:
                work.inbox.say("stop")
            work.inbox.close()
        await asyncio.wait((work.running,))

    async def leave(self) -> None:
        """Nobody says more: the agent ends, then its servers; those that are still starting are given up."""
        await self.close()
        if self._offers is None:
            self._opening.close()
            return
        self._offers.cancel()
        await asyncio.wait((self._offers,))
        if not self._offers.cancelled() and self._offers.exception() is None:
            await self._offers.result().close()

    def _quiet_talk(self) -> Talk | None:
        if not self.idle:
            raise BadUse("the agent is at work; stop it first, or wait")
        return self._work.talk if self._work is not None else None

    async def _carry(self, work: _Work, request: str) -> None:
        """Begin or take up the session, and go on until it ends."""
        assert self._offers is not None  # opened with the first word
        offers = await asyncio.shield(self._offers)
        person = Person(work.inbox, self.approver, lambda settings: _Attentive(self, self._eyes(settings)))
        if self.file is None:
            work.talk = begin(replace(self._ask, request=request), self.desk, offers, person)
        else:
            work.talk = resume(self.file, request, self.desk, offers, person)
        self.file = work.talk.file
        await work.talk.agent.run()

    def _over(self, running: asyncio.Future[Any]) -> None:
        self.idle = True
        if not running.cancelled() and (error := running.exception()) is not None:
            self._failed(error)

    def _noted(self, words: str) -> str:
        """The request, with what the agent must know of what happened since its last turn."""
        note, self._note = self._note, ""
        return f"{note}\n\n{words}" if note else words


class _Attentive:
    """Eyes that also keep whether the agent waits."""

    def __init__(self, dialogue: Dialogue, eyes: Eyes) -> None:
        self._dialogue, self._eyes = dialogue, eyes
        self.wrote = eyes.wrote

    def delta(self, part: Part, piece: str) -> None:
        self._eyes.delta(part, piece)

    def entry(self, entry: Entry) -> None:
        if entry.type == "message" and entry.data["role"] == "user" and entry.data.get("delivery") == "queue":
            self._dialogue.idle = False
        self._eyes.entry(entry)

    def waiting(self, wait: Wait) -> None:
        self._eyes.waiting(wait)

    def idle(self, reason: str, message: str) -> None:
        self._dialogue.idle = True
        self._eyes.idle(reason, message)
