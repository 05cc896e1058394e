"""One session of an editor: the face's dialogue over a folder, with the editor as its person and its eyes.

The agent runs as long as the conversation does and waits between prompts. Where it has to end (a fault, another effort), the next
prompt goes on from what is on disk. A prompt that comes while one is answered steers it, and both end together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from acp import RequestError, helpers
from acp.interfaces import Client
from acp.schema import (
    AllowedOutcome,
    AvailableCommand,
    AvailableCommandsUpdate,
    PermissionOption,
    SessionMode,
    SessionModeState,
    StopReason,
    ToolCallUpdate,
)

from etude.agent.acp.updates import Updates
from etude.agent.app.chat_session import SessionStart
from etude.agent.app.errors import AppError
from etude.agent.app.extensions import ExtensionOptions, Extensions
from etude.agent.app.interactive_session import InteractiveSession
from etude.agent.app.model import AgentModel, ModelChoice
from etude.agent.app.runtime import SessionRuntime
from etude.agent.app.workspace_access import SandboxMode
from etude.agent.harness.approval import ApprovalAnswer, ApprovalPolicy, Approver, Effect, rule_for
from etude.agent.harness.control_flow import EndReason
from etude.agent.harness.mcp.server import McpServer
from etude.agent.harness.observer import Part
from etude.agent.harness.presets.preset import preset_of
from etude.agent.harness.settings import HarnessSettings
from etude.agent.policy.protocol import RetryWait
from etude.core.redact.keys import mask_keys
from etude.core.trace.entry import Effort, Entry
from etude.core.trace.message import ToolCall
from etude.core.trace.session import Session

# Asks the person at the editor whether a call may run.


_MODES: dict[ApprovalPolicy, tuple[str, str]] = {
    "never": ("Ask nothing", "every call runs unasked"),
    "commands": ("Ask for commands", "reading and editing run, commands and the network are asked for"),
    "writes": ("Ask for changes", "reading runs, the rest is asked for"),
    "all": ("Ask for everything", "every call is asked for"),
}


_NO = PermissionOption(option_id="deny", name="Don't allow", kind="reject_once")


def is_mode(name: str) -> bool:
    return name in _MODES


def modes(current: ApprovalPolicy) -> SessionModeState:
    """The approval policies as the protocol's modes."""
    known = [SessionMode(id=policy, name=name, description=words) for policy, (name, words) in _MODES.items()]
    return SessionModeState(current_mode_id=current, available_modes=known)


async def ask(client: Client, session_id: str, updates: Updates, call: ToolCall, effect: Effect) -> ApprovalAnswer:
    """A dialog that is closed is a no, and so is an editor that can't ask."""
    options = [PermissionOption(option_id="once", name="Allow", kind="allow_once")]
    if (rule := rule_for(call, effect)) is not None:
        options.append(
            PermissionOption(option_id="session", name=f"Allow {' '.join(rule)} from now on", kind="allow_always")
        )
    options.append(_NO)
    update = ToolCallUpdate(tool_call_id=call.id, status="pending", **updates.call(call))
    try:
        outcome = (await client.request_permission(session_id=session_id, tool_call=update, options=options)).outcome
    except RequestError as error:
        return ApprovalAnswer("deny", f"the editor could not ask: {error}")
    if not isinstance(outcome, AllowedOutcome):
        return ApprovalAnswer("deny", "the question was closed without an answer")
    if outcome.option_id == "session" and rule is not None:
        return ApprovalAnswer("session")
    return ApprovalAnswer("once") if outcome.option_id == "once" else ApprovalAnswer("deny")


async def approve_server(client: Client, session_id: str, server: McpServer) -> bool:
    """Whether a project's MCP server may start; remembered by the harness."""
    title = f"Start the MCP server {server.name} of {server.source}: {server.shown}"
    update = ToolCallUpdate(tool_call_id=f"mcp-{server.name}", title=title, kind="execute", status="pending")
    options = [PermissionOption(option_id="always", name="Allow in this project", kind="allow_always"), _NO]
    try:
        outcome = (await client.request_permission(session_id=session_id, tool_call=update, options=options)).outcome
    except RequestError:
        return False  # the session then says that it was not approved
    return isinstance(outcome, AllowedOutcome) and outcome.option_id == "always"


_STOP_REASONS: dict[str, StopReason] = {
    "done": "end_turn", "message": "end_turn", "stopped": "cancelled",
    "max_turns": "max_turn_requests", "max_tokens": "max_tokens", "refused": "refusal",
    "no_answer": "refusal",
}  # fmt: skip
assert set(_STOP_REASONS) == set(get_args(EndReason)), "every way to end has a stop reason"
COMMANDS = {
    "compact": "Sum up the conversation now and go on from the summary; words after it say what matters",
    "undo": "Take back the edits of the last request; `/undo all`: of the session",
    "mcp": "Which MCP servers run, with which tools, and what could not be had",
}


@dataclass(frozen=True)
class EditorSessionOptions:
    """What all sessions of a server are made with. `model` is opened with the first session."""

    choice: ModelChoice
    model: Callable[[], Awaitable[AgentModel]]
    walls: SandboxMode = "workspace"
    network: bool = False
    approval: ApprovalPolicy = "never"
    wanted: ExtensionOptions = field(default_factory=ExtensionOptions)


class Conversation:
    """The eyes of its own agent. `given`: the editor's MCP servers, started with the first prompt and ended with the conversation;
    `held`: what ends with it."""

    def __init__(
        self, setup: EditorSessionOptions, client: Client, session_id: str, runtime: SessionRuntime, held: AsyncExitStack,
        given: Sequence[McpServer], *,
        session: Path | None = None,
    ) -> None:  # fmt: skip
        self.folder = runtime.place.folder
        self._client = client
        self.id = session_id
        self._held = held
        settings = runtime.settings(session)
        self._updates = Updates(preset_of(settings), self.folder)
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._sender = asyncio.create_task(self._send())
        self._answer: asyncio.Future[StopReason] | None = None
        self._introduced = False
        opening = Extensions.open(
            setup.wanted, self.folder, settings, self.mention, approve=self._approve, given=given
        )  # fmt: skip
        approver, own = Approver(setup.approval, self._ask), SessionStart("", session_id=session_id)
        self._dialogue = InteractiveSession(
            runtime, opening, approver, lambda _: self, self._failed, session=session, start=own
        )

    @property
    def approver(self) -> Approver:
        return self._dialogue.approver

    @property
    def settings(self) -> HarnessSettings:
        return self._dialogue.runtime.model.settings

    @property
    def working(self) -> bool:
        """A prompt is being answered."""
        return self._answer is not None and not self._answer.done()

    async def prompt(self, text: str) -> StopReason:
        """Until the agent has answered, and the editor was sent all of it. Raises RequestError where the agent can't go on."""
        if not self._introduced:
            self._introduced = True
            known = [AvailableCommand(name=name, description=words) for name, words in COMMANDS.items()]
            self._tell([AvailableCommandsUpdate(session_update="available_commands_update", available_commands=known)])
        if not self.working:
            self._answer = asyncio.get_running_loop().create_future()
        assert self._answer is not None
        try:
            await self._hear(text)
        except AppError as error:
            self._answer.set_exception(request_error(str(error)))
        reason = await asyncio.shield(self._answer)
        await self.flush()
        return reason

    async def _hear(self, text: str) -> None:
        """A request, or a command with a slash. Raises AppError."""
        assert self._answer is not None
        name, _, rest = text.strip().partition(" ")
        if name == "/compact":
            self._dialogue.compact(rest)
            return
        if name == "/undo":
            done = await self._dialogue.undo(rest.strip() == "all")
            self.mention(f"took back {', '.join(done.paths)}")
        elif name == "/mcp":
            self.mention("\n".join(f"- {line}" for line in self._dialogue.servers()))
        else:
            self._dialogue.send(text)
            return
        self._answer.set_result("end_turn")

    def cancel(self) -> None:
        """Break off what is being answered; nothing if nothing is."""
        if self.working:
            self._dialogue.stop()

    async def set_effort(self, effort: Effort) -> None:
        """From the next prompt on. Raises RequestError while one is answered."""
        try:
            await self._dialogue.set_effort(effort)
        except AppError as error:
            raise request_error(str(error)) from error

    def replay(self, session: Session) -> None:
        """Tell the editor what happened in a session that it has not seen."""
        for entry in session.entries:
            self._tell(self._updates.entry(entry, replayed=True))

    async def flush(self) -> None:
        """Returns when the editor was sent all that happened so far."""
        await self._outgoing.join()

    async def close(self) -> None:
        await self._dialogue.shut_down()
        await self._held.aclose()
        self._sender.cancel()
        await asyncio.wait((self._sender,))

    def mention(self, line: str) -> None:
        """A line for the person, as words of the agent: the protocol has no other place for it."""
        self._tell([helpers.update_agent_message_text(f"{line}\n\n")])

    def delta(self, part: Part, piece: str) -> None:
        self._tell(self._updates.delta(part, piece))

    def wrote(self, path: str, before: bytes | None, after: bytes | None) -> None:
        self._updates.on_file_change(path, before, after)

    def entry(self, entry: Entry) -> None:
        self._tell(self._updates.entry(entry))

    def waiting(self, wait: RetryWait) -> None:
        self._tell([helpers.update_agent_thought_text(f"{wait.reason}: asked again in {wait.seconds:.0f} s\n")])

    def idle(self, reason: str, message: str) -> None:
        if (
            self.working and not self._dialogue.has_queued_text
        ):  # else something was said too late to steer, and the prompt goes on
            assert self._answer is not None
            self._answer.set_result(_STOP_REASONS[reason])

    def _failed(self, error: BaseException) -> None:
        """The agent is over while somebody waits for its answer."""
        if self._answer is None or not self.working:
            return
        if isinstance(error, (OSError, ValueError, AppError)):  # it could not begin
            self._answer.set_exception(request_error(str(error)))
        else:
            self._answer.set_exception(RequestError(-32603, mask_keys(str(error)), {"kind": type(error).__name__}))

    async def _approve(self, server: McpServer) -> bool:
        return await approve_server(self._client, self.id, server)

    async def _ask(self, call: ToolCall, effect: Effect) -> ApprovalAnswer:
        await self.flush()  # the editor must know the call that it asks for
        return await ask(self._client, self.id, self._updates, call, effect)

    def _tell(self, updates: Sequence[Any]) -> None:
        for update in updates:
            self._outgoing.put_nowait(update)

    async def _send(self) -> None:
        """One update after the other, in the order in which things happened."""
        while True:
            update = await self._outgoing.get()
            try:
                await self._client.session_update(session_id=self.id, update=update)
            except Exception as error:  # noqa: BLE001 - a prompt must not wait for ever for what can't be sent
                logging.warning("an update of %s could not be sent: %s", self.id, error)
                if isinstance(error, ConnectionError):
                    self.cancel()  # no editor is there to see it
            finally:
                self._outgoing.task_done()


def request_error(message: str) -> RequestError:
    """The editor asked for what can't be done."""
    return RequestError(-32602, mask_keys(message))
