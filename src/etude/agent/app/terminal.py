"""The agent's terminal app: its work scrolls by above an input line that is always open.

Enter sends a message: a request to an idle agent, a steering message to one at work. Alt-Enter (or /queue) queues the message until the
agent has finished. Ctrl-C interrupts the turn; a second one leaves. Approval questions (may this call run, may this server start) are
answered in the same line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import get_args

from rich.console import Console

from etude.agent.app.errors import ANSWERED, AppError, UsageError
from etude.agent.app.event_printer import DIM, EventPrinter, plain
from etude.agent.app.events import Event, EventStream, notice
from etude.agent.app.extensions import Extensions
from etude.agent.app.headless import AgentJob
from etude.agent.app.interactive_session import InteractiveSession
from etude.agent.app.prompt_line import PromptLine, QueuedText
from etude.agent.app.runtime import SessionRuntime, open_runtime
from etude.agent.app.saved_sessions import last_answer
from etude.agent.app.user_files import history_file
from etude.agent.harness.approval import ApprovalAnswer, Approver, Effect
from etude.agent.harness.mcp.server import McpServer
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import PolicyError
from etude.core.redact.keys import mask_keys
from etude.core.trace.entry import Effort
from etude.core.trace.message import ToolCall
from etude.sandbox.errors import InfraError

# A second Ctrl-C within this time leaves the app.
LEAVE_WITHIN_S = 2.0
HELP = """Enter: a request, or steers the agent at work · Alt-Enter or /queue TEXT: when it has finished
Ctrl-C: break off the turn, twice leaves · /undo [all] · /diff: what its edits changed · /compact [WORDS]: sum up now
/effort low|medium|high · /mcp: servers · /status · /quit"""


async def run_terminal(job: AgentJob) -> int:
    """Run until the user leaves, and return the exit status. Raises AppError for a job that can't start."""
    from prompt_toolkit.patch_stdout import patch_stdout

    console = Console()
    async with open_runtime(job.model, job.workspace, job.extensions.signals, partial(print_dim, console)) as runtime:
        with patch_stdout(raw=True):
            return await TerminalApp(job, runtime, console).run()


def print_dim(console: Console, words: str) -> None:
    """Print a line of the app. Markup is off, because a path may contain brackets."""
    console.print(words, style=DIM, markup=False, highlight=False)


class TerminalApp:
    """One user and one agent at a terminal."""

    def __init__(self, job: AgentJob, runtime: SessionRuntime, console: Console) -> None:
        self._job, self._console = job, console
        self._printer = EventPrinter(console)
        self._approval = ApprovalPrompt(self._print)
        self._interrupted_at_s = -LEAVE_WITHIN_S
        self._line = PromptLine(self._state, self._tail, history_file(), lambda: self._approval.is_open)
        wanted, settings = job.extensions, runtime.settings(job.session)
        opening = Extensions.open(
            wanted, job.workspace.folder, settings, self._on_notice, approve=self._approval.approve
        )
        approver = Approver(job.approval, self._approval.ask)
        self._session = InteractiveSession(
            runtime, opening, approver, self._make_observer, self._on_failure, session=job.session, start=job.start
        )

    async def run(self) -> int:
        walls = "in a sandbox" if self._job.workspace.sandbox_mode == "workspace" else "without a sandbox"
        self._print(
            f"etude · {self._session.runtime.model.policy.name} · {self._job.workspace.folder} · {walls} · /help"
        )
        if (file := self._session.file) is not None:
            self._print(f"goes on with {file.stem}; it said last:\n{plain(last_answer(file))}")
        try:
            async with self._line:
                self._session.open_extensions()
                while await self._read_input():
                    self._line.refresh()
        finally:
            await self._session.shut_down()
        if (file := self._session.file) is not None:
            self._print(f"session {file.stem}; etude agent --resume {file.stem}")
        return ANSWERED

    async def _read_input(self) -> bool:
        """Handle one input of the user. Returns False when the user leaves."""
        try:
            words = await self._line.read()
        except KeyboardInterrupt:
            return not self._on_interrupt()
        except EOFError:
            return False
        return not words.strip() or await self._handle(words.strip(), isinstance(words, QueuedText))

    async def _handle(self, words: str, queued: bool) -> bool:
        """Handle a line. Returns False when the user leaves."""
        if self._approval.is_open and not words.startswith("/"):
            self._approval.answer(words)
            return True
        name, _, rest = words.partition(" ")
        if name in ("/quit", "/exit"):
            return False
        try:
            if not name.startswith("/") or "/" in name[1:]:
                self._send(words, queued)
            elif name == "/queue" and rest.strip():
                self._send(rest.strip(), True)
            else:
                await self._run_command(name, rest.strip())
        except AppError as error:
            self._print(f"error: {error}")
        return True

    async def _run_command(self, name: str, rest: str) -> None:
        """Run a slash command."""
        if name == "/undo" and rest in ("", "all"):
            await self._session.undo(bool(rest))
        elif name == "/effort" and rest in get_args(Effort):
            await self._session.set_effort(rest)  # type: ignore[arg-type]
            self._print(f"effort: {rest}")
        elif name == "/compact":
            self._session.compact(rest)
            self._print("(summing up)")
        elif name == "/diff":
            self._diff()
        elif name == "/mcp":
            self._print(plain("\n".join(self._session.servers())))
        elif name == "/status":
            self._print("\n".join(self._session.status()))
        else:
            known = name in ("/help", "/effort", "/undo", "/queue")
            self._print(HELP if known else f"there is no {plain(name)}\n{HELP}")

    def _send(self, words: str, queued: bool) -> None:
        how = self._session.send(words, queued=queued)
        if how != "request":
            when = "heard before its next turn" if how == "steer" else "heard when it has finished"
            self._print(f"({when}: {plain(words)})")

    def _diff(self) -> None:
        items = self._session.changes()
        if not items:
            raise UsageError("its edits changed nothing (what shell commands did is not recorded: git diff)")
        for item in items:
            self._printer({"type": "item.completed", "item": item})

    def _make_observer(self, settings: HarnessSettings) -> EventStream:
        return EventStream(preset_of(settings), self._on_event)

    def _on_failure(self, error: BaseException) -> None:
        """Print an error that ended the agent. An event has already reported errors of the endpoint and the sandbox."""
        if isinstance(error, AppError):
            self._print(f"error: {error}")
        elif not isinstance(error, (PolicyError, InfraError)):
            self._print(
                f"error: {type(error).__name__}: {mask_keys(str(error))}; the next request takes the session up again"
            )
        self._line.refresh()

    def _on_notice(self, line: str) -> None:
        self._on_event(notice(line))

    def _on_event(self, event: Event) -> None:
        self._printer(event)
        self._line.refresh()

    def _on_interrupt(self) -> bool:
        """Handle Ctrl-C. Returns True when the user leaves."""
        now_s = time.monotonic()
        twice, self._interrupted_at_s = now_s - self._interrupted_at_s < LEAVE_WITHIN_S, now_s
        if not twice:
            self._print("stopping; Ctrl-C again leaves" if self._session.stop() else "Ctrl-C again leaves")
        return twice

    def _state(self) -> str:
        if self._approval.is_open:
            return "allow? "
        return "" if self._session.is_idle else "working "

    def _tail(self) -> tuple[str, bool]:
        return self._printer.tail, self._printer.tail_is_thought

    def _print(self, words: str) -> None:
        print_dim(self._console, words)


# Characters shown of each argument in an approval question, so that the user sees what they allow.
SHOWN_CHARS = 600


class ApprovalPrompt:
    """A question to the user, answered in the input line: y, a(lways), or n with a reason for the agent.

    One question is open at a time: calls are decided one after the other, and servers start before any call.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._print = say
        self._pending: asyncio.Future[ApprovalAnswer] | None = None

    @property
    def is_open(self) -> bool:
        return self._pending is not None and not self._pending.done()

    async def ask(self, call: ToolCall, effect: Effect) -> ApprovalAnswer:
        """Ask whether a call may run, and wait for the answer. A stop withdraws the question."""
        values = "\n".join(f"    {name}: {plain(_short(value))}" for name, value in call.arguments.items())
        return await self._wait_for_answer(
            f"? {call.name} ({effect})\n{values}\n  allow it? y · a(lways, for this session) · n REASON"
        )

    async def approve(self, server: McpServer) -> bool:
        """Ask whether a server that the project describes may start. A yes is remembered for this project."""
        shown = plain(f"{server.name}, as {server.source} has it, with your rights:\n    {_short(server.shown)}")
        response = await self._wait_for_answer(
            f"? start the MCP server {shown}\n  allow it? y (from now on in this project) · n"
        )
        return response.answer != "deny"

    async def _wait_for_answer(self, question: str) -> ApprovalAnswer:
        self._pending = asyncio.get_running_loop().create_future()
        self._print(question)
        try:
            return await self._pending
        finally:
            self._pending = None

    def answer(self, words: str) -> None:
        """Take an answer. Any other text repeats the question, so that a typing error never allows anything."""
        assert self._pending is not None and not self._pending.done()
        first, _, rest = words.strip().partition(" ")
        if first.lower() in ("y", "yes"):
            response = ApprovalAnswer("once")
        elif first.lower() in ("a", "always"):
            response = ApprovalAnswer("session")
        elif first.lower() in ("n", "no"):
            response = ApprovalAnswer("deny", rest.strip() or "the person said no")
        else:
            self._print("y, a(lways) or n REASON")
            return
        self._pending.set_result(response)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}… ({len(text) - SHOWN_CHARS} more characters)"
