"""The agent at a terminal: what it does scrolls by, and the line below is always open.

Enter speaks: to an idle agent it is a request, to one at work it steers. Alt-Enter (or /queue) keeps the words until it has
finished. Ctrl-C breaks the turn off, twice leaves. Questions of the approval policy are answered in the same line.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from rich.console import Console

from etude.face.errors import ANSWERED, FaceError
from etude.face.events import Event
from etude.face.headless import Ends, Job
from etude.face.line import Line, Queued
from etude.face.model import Model, open_model
from etude.face.place import opened
from etude.face.question import Question
from etude.face.talk import Ask, Talk, begin, last_words, resume
from etude.face.teller import DIM, Teller, plain
from etude.face.undo import undo
from etude.harness.approval import Approver
from etude.harness.inbox import Inbox
from etude.policy.protocol import PolicyError
from etude.sandbox.protocol import InfraError, Operations
from etude.trace.entry import Effort

if TYPE_CHECKING:
    from pathlib import Path

# Two Ctrl-C within this time leave.
TWICE_S = 2.0
HELP = """Enter: a request, or steers the agent at work · Alt-Enter or /queue TEXT: when it has finished
Ctrl-C: break off the turn, twice leaves · /undo [all] · /effort low|medium|high · /status · /quit"""


async def run_terminal(job: Job) -> int:
    """Until the person leaves; the exit status. Raises FaceError for what can't be begun."""
    from prompt_toolkit.patch_stdout import patch_stdout

    console = Console()
    model = await open_model(job.choice)
    try:
        async with opened(job.place) as operations:
            with patch_stdout(raw=True):
                return await Terminal(job, model, operations, console).run()
    finally:
        closing = model.close()
        if closing is not None:
            await closing


@dataclass
class _Work:
    """The agent that is being talked to."""

    talk: Talk
    inbox: Inbox
    running: asyncio.Future[Any]


class Terminal:
    """One person, one agent."""

    def __init__(self, job: Job, model: Model, operations: Operations, console: Console) -> None:
        self._job, self._model, self._operations, self._console = job, model, operations, console
        self._choice = job.choice
        self._teller = Teller(console)
        self._ends = Ends(idle=True)
        self._question = Question(self._say)
        self._approver = Approver(job.approval, self._question.ask)
        self._work: _Work | None = None
        self._file: Path | None = job.session
        self._note = ""
        self._broke_off_s = -TWICE_S
        self._line = Line(self._state, self._tail)

    async def run(self) -> int:
        walls = "in a sandbox" if self._job.place.walls == "workspace" else "without a sandbox"
        self._say(f"etude · {self._model.policy.name} · {self._job.place.folder} · {walls} · /help")
        if self._file is not None:
            self._say(f"goes on with {self._file.stem}; it said last:\n{plain(last_words(self._file))}")
        async with self._line:
            while await self._listen():
                self._line.refresh()
        await self._close()
        if self._file is not None:
            self._say(f"session {self._file.stem}; etude agent --resume {self._file.stem}")
        return ANSWERED

    async def _listen(self) -> bool:
        """One thing that the person does. False: they leave."""
        try:
            words = await self._line.read()
        except KeyboardInterrupt:
            return not self._interrupted()
        except EOFError:
            return False
        return not words.strip() or await self._heard(words.strip(), isinstance(words, Queued))

    async def _heard(self, words: str, queued: bool) -> bool:
        """False: the person leaves."""
        if self._question.open and not words.startswith("/"):
            self._question.answer(words)
            return True
        name, _, rest = words.partition(" ")
        if name in ("/quit", "/exit"):
            return False
        try:
            if not name.startswith("/") or "/" in name[1:]:
                await self._speak(words, queued)
            elif name == "/queue" and rest.strip():
                await self._speak(rest.strip(), True)
            elif name == "/undo" and rest.strip() in ("", "all"):
                await self._undo(bool(rest.strip()))
            elif name == "/effort" and rest.strip() in get_args(Effort):
                await self._effort(rest.strip())
            elif name == "/status":
                self._say(self._status())
            else:
                self._say(HELP)
        except FaceError as error:
            self._say(f"error: {error}")
        return True

    async def _speak(self, words: str, queued: bool) -> None:
        work = self._work
        if work is not None and not work.running.done():
            steers = not self._ends.idle and not queued
            work.inbox.say("steer" if steers else "queue", words if steers else self._noted(words))
            if not self._ends.idle:
                self._say(
                    f"({'heard before its next turn' if steers else 'heard when it has finished'}: {plain(words)})"
                )
            return
        self._ends.idle = False
        inbox = Inbox()
        start = (self._choice, self._model, self._job.place, self._operations, inbox, self._approver, self._told)
        ask = Ask(self._noted(words), self._job.ask.test_command)
        talk = begin(ask, *start) if self._file is None else resume(self._file, ask.request, *start)
        self._file = talk.file
        self._work = _Work(talk, inbox, asyncio.ensure_future(self._carry(talk)))
        self._work.running.add_done_callback(self._over)

    async def _carry(self, talk: Talk) -> None:
        try:
            await talk.agent.run()
        except (PolicyError, InfraError):
            return  # told as an `error` event; the next request takes the session up again

    def _over(self, running: asyncio.Future[Any]) -> None:
        self._ends.idle = True
        self._line.refresh()
        if not running.cancelled() and (error := running.exception()) is not None:
            self._say(f"error: {type(error).__name__}: {error}; the next request takes the session up again")

    def _noted(self, words: str) -> str:
        """The request, with what the agent must know of what happened since its last turn."""
        note, self._note = self._note, ""
        return f"{note}\n\n{words}" if note else words

    def _told(self, event: Event) -> None:
        self._ends(event)
        self._teller(event)
        self._line.refresh()

    def _interrupted(self) -> bool:
        """Ctrl-C. True: leave."""
        now_s = time.monotonic()
        twice, self._broke_off_s = now_s - self._broke_off_s < TWICE_S, now_s
        if twice:
            return True
        if self._work is not None and not self._ends.idle:
            self._work.inbox.say("stop")
            self._say("stopping; Ctrl-C again leaves")
        else:
            self._say("Ctrl-C again leaves")
        return False

    async def _undo(self, everything: bool) -> None:
        if self._work is None or not self._ends.idle:
            self._say("nothing to take back yet" if self._work is None else "it is at work; Ctrl-C first")
            return
        talk = self._work.talk
        done = await undo(talk.journal, talk.recorder.session.entries, self._operations, everything=everything)
        talk.recorder.append("undo", dict(done.data))
        talk.recorder.flush()
        self._note = f"(The person took back your edits of {', '.join(done.paths)}: the files are as they were before.)"

    async def _effort(self, word: str) -> None:
        """From the next request on: the session is closed, and taken up again with it."""
        if not self._ends.idle:
            self._say("it is at work; Ctrl-C first, or wait")
            return
        await self._close()
        effort: Effort = word  # type: ignore[assignment]
        self._choice = replace(self._choice, effort=effort)
        settings = self._model.settings.model_copy(update={"effort": effort})
        self._model = replace(self._model, settings=settings)
        self._say(f"effort: {word}")

    async def _close(self) -> None:
        work, self._work = self._work, None
        if work is None:
            return
        if not self._ends.idle:
            work.inbox.say("stop")
        if not work.running.done():
            work.inbox.close()
        await work.running

    def _status(self) -> str:
        rows = [f"model {self._model.policy.name}, effort {self._choice.effort}, approval {self._approver.policy}"]
        if self._file is not None:
            rows.append(f"session {self._file}")
        if self._work is not None:
            entries = self._work.talk.recorder.session.entries
            turns = sum(entry.type == "completion" for entry in entries)
            rows.append(f"{turns} turns, {len(self._work.talk.journal.edits())} edits that can be taken back")
        return "\n".join(rows)

    def _state(self) -> str:
        if self._question.open:
            return "allow? "
        return "" if self._ends.idle else "working "

    def _tail(self) -> tuple[str, bool]:
        return self._teller.tail, self._teller.tail_is_thought

    def _say(self, words: str) -> None:
        self._console.print(words, style=DIM, markup=False, highlight=False)
