"""The agent at a terminal: what it does scrolls by, and the line below is always open.

Enter speaks: to an idle agent it is a request, to one at work it steers. Alt-Enter (or /queue) keeps the words until it has
finished. Ctrl-C breaks the turn off, twice leaves. Questions (may this call run, may this server start) are answered in the same line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

from rich.console import Console

from etude.agent.app.errors import ANSWERED, BadUse, FaceError
from etude.agent.app.event_printer import DIM, Teller, plain
from etude.agent.app.events import Event, Events, notice
from etude.agent.app.extensions import Offers
from etude.agent.app.headless import Job
from etude.agent.app.interactive_session import Dialogue
from etude.agent.app.prompt_line import Line, Queued
from etude.agent.app.runtime import Desk, open_desk
from etude.agent.app.saved_sessions import last_words
from etude.agent.app.user_files import history_file
from etude.agent.harness.approval import Approver, Asked, Effect
from etude.agent.harness.mcp.server import Server
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError
from etude.core.redact.keys import masked
from etude.core.trace.entry import Effort
from etude.core.trace.message import ToolCall
from etude.sandbox.errors import InfraError

# Two Ctrl-C within this time leave.
TWICE_S = 2.0
HELP = """Enter: a request, or steers the agent at work · Alt-Enter or /queue TEXT: when it has finished
Ctrl-C: break off the turn, twice leaves · /undo [all] · /diff: what its edits changed · /compact [WORDS]: sum up now
/effort low|medium|high · /mcp: servers · /status · /quit"""


async def run_terminal(job: Job) -> int:
    """Until the person leaves; the exit status. Raises FaceError for what can't be begun."""
    from prompt_toolkit.patch_stdout import patch_stdout

    console = Console()
    async with open_desk(job.choice, job.place, job.wanted.signals, partial(aside, console)) as desk:
        with patch_stdout(raw=True):
            return await Terminal(job, desk, console).run()


def aside(console: Console, words: str) -> None:
    """A line that is neither the model's nor the person's. A path in brackets is no markup."""
    console.print(words, style=DIM, markup=False, highlight=False)


class Terminal:
    """One person, one agent."""

    def __init__(self, job: Job, desk: Desk, console: Console) -> None:
        self._job, self._console = job, console
        self._teller = Teller(console)
        self._question = Question(self._say)
        self._broke_off_s = -TWICE_S
        self._line = Line(self._state, self._tail, history_file(), lambda: self._question.open)
        wanted, settings = job.wanted, desk.settings(job.session)
        opening = Offers.open(wanted, job.place.folder, settings, self._notice, approve=self._question.approve)
        approver = Approver(job.approval, self._question.ask)
        self._dialogue = Dialogue(desk, opening, approver, self._eyes, self._failed, session=job.session, ask=job.ask)

    async def run(self) -> int:
        walls = "in a sandbox" if self._job.place.walls == "workspace" else "without a sandbox"
        self._say(f"etude · {self._dialogue.desk.model.policy.name} · {self._job.place.folder} · {walls} · /help")
        if (file := self._dialogue.file) is not None:
            self._say(f"goes on with {file.stem}; it said last:\n{plain(last_words(file))}")
        try:
            async with self._line:
                self._dialogue.open()
                while await self._listen():
                    self._line.refresh()
        finally:
            await self._dialogue.leave()
        if (file := self._dialogue.file) is not None:
            self._say(f"session {file.stem}; etude agent --resume {file.stem}")
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
                self._speak(words, queued)
            elif name == "/queue" and rest.strip():
                self._speak(rest.strip(), True)
            else:
                await self._ordered(name, rest.strip())
        except FaceError as error:
            self._say(f"error: {error}")
        return True

    async def _ordered(self, name: str, rest: str) -> None:
        """A word with a slash."""
        if name == "/undo" and rest in ("", "all"):
            await self._dialogue.undo(bool(rest))
        elif name == "/effort" and rest in get_args(Effort):
            await self._dialogue.set_effort(rest)  # type: ignore[arg-type]
            self._say(f"effort: {rest}")
        elif name == "/compact":
            self._dialogue.compact(rest)
            self._say("(summing up)")
        elif name == "/diff":
            self._diff()
        elif name == "/mcp":
            self._say(plain("\n".join(self._dialogue.servers())))
        elif name == "/status":
            self._say("\n".join(self._dialogue.status()))
        else:
            known = name in ("/help", "/effort", "/undo", "/queue")
            self._say(HELP if known else f"there is no {plain(name)}\n{HELP}")

    def _speak(self, words: str, queued: bool) -> None:
        how = self._dialogue.say(words, queued=queued)
        if how != "request":
            when = "heard before its next turn" if how == "steer" else "heard when it has finished"
            self._say(f"({when}: {plain(words)})")

    def _diff(self) -> None:
        items = self._dialogue.changes()
        if not items:
            raise BadUse("its edits changed nothing (what shell commands did is not recorded: git diff)")
        for item in items:
            self._teller({"type": "item.completed", "item": item})

    def _eyes(self, settings: HarnessSettings) -> Events:
        return Events(preset_of(settings), self._told)

    def _failed(self, error: BaseException) -> None:
        """Of a fault of the endpoint or the sandbox an event has told."""
        if isinstance(error, FaceError):
            self._say(f"error: {error}")
        elif not isinstance(error, (PolicyError, InfraError)):
            self._say(
                f"error: {type(error).__name__}: {masked(str(error))}; the next request takes the session up again"
            )
        self._line.refresh()

    def _notice(self, line: str) -> None:
        self._told(notice(line))

    def _told(self, event: Event) -> None:
        self._teller(event)
        self._line.refresh()

    def _interrupted(self) -> bool:
        """Ctrl-C. True: leave."""
        now_s = time.monotonic()
        twice, self._broke_off_s = now_s - self._broke_off_s < TWICE_S, now_s
        if not twice:
            self._say("stopping; Ctrl-C again leaves" if self._dialogue.stop() else "Ctrl-C again leaves")
        return twice

    def _state(self) -> str:
        if self._question.open:
            return "allow? "
        return "" if self._dialogue.idle else "working "

    def _tail(self) -> tuple[str, bool]:
        return self._teller.tail, self._teller.tail_is_thought

    def _say(self, words: str) -> None:
        aside(self._console, words)


# --- from question.py: A question, answered in a line: may a call run, y, a(lways), or n with a reason that the agent is told; may a server start.

# Of a value that is shown with the question: a person must see what they allow.
SHOWN_CHARS = 600


class Question:
    """One at a time: calls are ruled on one after the other, and servers start before any call."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._asked: asyncio.Future[Asked] | None = None

    @property
    def open(self) -> bool:
        return self._asked is not None and not self._asked.done()

    async def ask(self, call: ToolCall, effect: Effect) -> Asked:
        """Wait for the person's answer; a stop takes the question back."""
        values = "\n".join(f"    {name}: {plain(_short(value))}" for name, value in call.arguments.items())
        return await self._answer(
            f"? {call.name} ({effect})\n{values}\n  allow it? y · a(lways, for this session) · n REASON"
        )

    async def approve(self, server: Server) -> bool:
        """Whether a server that the project describes may start; a yes is remembered for this project."""
        shown = plain(f"{server.name}, as {server.source} has it, with your rights:\n    {_short(server.shown)}")
        asked = await self._answer(f"? start the MCP server {shown}\n  allow it? y (from now on in this project) · n")
        return asked.answer != "deny"

    async def _answer(self, question: str) -> Asked:
        self._asked = asyncio.get_running_loop().create_future()
        self._say(question)
        try:
            return await self._asked
        finally:
            self._asked = None

    def answer(self, words: str) -> None:
        """What else is said asks again: a slip must not allow anything."""
        assert self._asked is not None and not self._asked.done()
        first, _, rest = words.strip().partition(" ")
        if first.lower() in ("y", "yes"):
            found = Asked("once")
        elif first.lower() in ("a", "always"):
            found = Asked("session")
        elif first.lower() in ("n", "no"):
            found = Asked("deny", rest.strip() or "the person said no")
        else:
            self._say("y, a(lways) or n REASON")
            return
        self._asked.set_result(found)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text) - SHOWN_CHARS} more characters)"
