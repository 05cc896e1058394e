"""One session of an editor: the harness' agent over a folder, with the editor as its person and its watcher.

The agent runs as long as the conversation does and waits between prompts. Where it has to end (a fault, another effort), the next
prompt goes on from what is on disk. A prompt that comes while one is answered steers it, and both end together.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from acp import RequestError, helpers
from acp.interfaces import Client
from acp.schema import StopReason

from etude.acp.editor_folder import EditorFolder
from etude.acp.permission import approve_server, ask
from etude.acp.updates import Updates
from etude.chat.renderer import Renderer
from etude.harness.agent import Agent, build_agent, session_header
from etude.harness.approval import ApprovalPolicy, Approver, Asked, Effect
from etude.harness.flow import EndReason
from etude.harness.inbox import Inbox
from etude.harness.instructions import find_instructions, rendered
from etude.harness.mcp.server import Server
from etude.harness.mcp.servers import Servers
from etude.harness.mcp.trust import Trust
from etude.harness.preset import preset_of
from etude.harness.services import ServedTool, Services
from etude.harness.settings import HarnessSettings
from etude.harness.task_facts import TaskFacts
from etude.harness.watcher import Part
from etude.policy.protocol import Policy
from etude.trace.entry import Effort, Entry, Header
from etude.trace.message import ToolCall
from etude.trace.migrations import SessionError
from etude.trace.reader import read_session
from etude.trace.session import Session
from etude.trace.writer import SessionWriter

_STOP_REASONS: dict[str, StopReason] = {
    "done": "end_turn", "message": "end_turn", "stopped": "cancelled",
    "max_turns": "max_turn_requests", "max_tokens": "max_tokens", "refused": "refusal",
}  # fmt: skip
assert set(_STOP_REASONS) == set(get_args(EndReason)), "every way to end has a stop reason"


@dataclass(frozen=True)
class Setup:
    """What all sessions of a server are made with. `policy` is made once for each session; `home` is where they are written."""

    settings: HarnessSettings
    policy: Callable[[], Policy]
    home: Path
    trust: Trust
    renderer: Renderer | None = None
    approval: ApprovalPolicy = "commands"
    services: Services = field(default_factory=Services)
    servers: Sequence[Server] = ()  # the person's own MCP servers


class Conversation:
    """A watcher of its own agent. `wanted`: MCP servers, started with the first prompt and ended with the conversation."""

    def __init__(
        self, setup: Setup, client: Client, session_id: str, machine: EditorFolder, wanted: Sequence[Server]
    ) -> None:
        self.folder = Path(machine.spec.workdir)
        self.file = setup.home / f"{session_id}.jsonl"
        self.settings = setup.settings
        self.approver = Approver(setup.approval, self._ask)
        self._setup = setup
        self._client = client
        self._id = session_id
        self._machine = machine
        self._wanted = wanted
        self._servers: Servers | None = None
        self._updates = Updates(preset_of(setup.settings), self.folder)
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._sender = asyncio.create_task(self._send())
        self._inbox = Inbox()
        self._agent: asyncio.Task[Any] | None = None
        self._answer: asyncio.Future[StopReason] | None = None

    @property
    def working(self) -> bool:
        """A prompt is being answered."""
        return self._answer is not None and not self._answer.done()

    async def prompt(self, text: str) -> StopReason:
        """Until the agent has answered, and the editor was told all of it. Raises RequestError where the agent can't go on."""
        if self.working:
            self._inbox.say("steer", text)
        else:
            self._answer = asyncio.get_running_loop().create_future()
            if self._agent is not None and not self._agent.done():
                self._inbox.say("queue", text)
            else:
                self._inbox = Inbox()
                await self._begin(text)
        assert self._answer is not None
        reason = await asyncio.shield(self._answer)
        await self.told()
        return reason

    def cancel(self) -> None:
        """Break off what is being answered; nothing if nothing is."""
        if self.working:
            self._inbox.say("stop")

    async def set_effort(self, effort: Effort) -> None:
        """From the next prompt on. Raises RequestError while one is answered."""
        if self._answer is not None and not self._answer.done():
            raise RequestError.invalid_request(
                {"message": "the agent is working; change its effort when it has answered"}
            )
        await self._end()
        self.settings = self.settings.model_copy(update={"effort": effort})

    def replay(self, session: Session) -> None:
        """Tell the editor what happened in a session that it has not seen."""
        for entry in session.entries:
            self._tell(self._updates.entry(entry, replayed=True))

    async def told(self) -> None:
        """Returns when the editor was sent all that happened so far."""
        await self._outgoing.join()

    async def close(self) -> None:
        await self._end()
        await self._machine.kill()
        if self._servers is not None:
            await self._servers.close()
        self._sender.cancel()
        await asyncio.wait((self._sender,))

    def delta(self, part: Part, piece: str) -> None:
        self._tell(self._updates.delta(part, piece))

    def entry(self, entry: Entry) -> None:
        self._tell(self._updates.entry(entry))

    def idle(self, reason: str, message: str) -> None:
        late = self._inbox.steered()
        for text in late:  # said too late to steer: the agent goes on, and the prompt with it
            self._inbox.say("queue", text)
        if not late and self._answer is not None and self.working:
            self._answer.set_result(_STOP_REASONS[reason])

    async def _begin(self, text: str) -> None:
        """Start the agent with a request, or go on with the session on disk."""
        try:
            services = replace(self._setup.services, mcp=await self._tools())
            self._agent = asyncio.create_task(self._agent_of(text, services).run())
        except (
            OSError,
            ValueError,
            SessionError,
        ) as error:  # a session that another process writes, a file that is none
            assert self._answer is not None
            self._answer.set_exception(refused(str(error)))
            return
        self._agent.add_done_callback(self._ended)

    async def _tools(self) -> tuple[ServedTool, ...]:
        """Of the MCP servers, started if they are not yet; what doesn't work is told as words of the agent."""
        if self._servers is None:
            self._servers = await Servers.start(
                self._wanted, self.folder, trust=self._setup.trust, approve=self._approve
            )
            self._tell([helpers.update_agent_message_text(f"{line}\n\n") for line in self._servers.problems])
        return self._servers.tools

    async def _approve(self, server: Server) -> bool:
        return await approve_server(self._client, self._id, server)

    def _agent_of(self, text: str, services: Services) -> Agent:
        policy, facts = self._setup.policy(), self._facts(text)
        resumed = read_session(self.file) if self.file.exists() else None
        if resumed is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            recorder = SessionWriter(self.file, self._header(policy, facts, services), every="line")
        else:
            recorder = SessionWriter.resume(self.file, every="line")
            if self.settings.effort != _effort_of(resumed):
                recorder.append("effort", {"effort": self.settings.effort})
        return build_agent(
            self.settings, policy, self._machine, facts,
            renderer=self._setup.renderer, recorder=recorder, services=services, journal=self._updates.changed,
            inbox=self._inbox, approver=self.approver, watcher=self, resumed=resumed,
        )  # fmt: skip

    def _facts(self, text: str) -> TaskFacts:
        told = f"The workspace is {self.folder} on {platform.system()}; today is {time.strftime('%Y-%m-%d')}."
        return TaskFacts(self._id, text, instructions=rendered(find_instructions(self.folder)), surroundings=told)

    def _header(self, policy: Policy, facts: TaskFacts, services: Services) -> Header:
        header = session_header(
            self.settings, policy, facts, renderer=self._setup.renderer, session_id=self._id, services=services
        )
        return replace(header, facts={**header.facts, "workspace": str(self.folder)})

    def _ended(self, agent: asyncio.Task[Any]) -> None:
        """The agent is over while somebody waits for its answer: only a fault ends it so."""
        error = None if agent.cancelled() else agent.exception()
        if self._answer is not None and self.working:
            words = str(error or "the agent was ended")
            self._answer.set_exception(RequestError(-32603, words, {"kind": type(error).__name__}))

    async def _end(self) -> None:
        """Let the agent end; one that works is stopped."""
        if self._agent is not None and not self._agent.done():
            self._inbox.close()
            self._inbox.say("stop")
            await asyncio.wait((self._agent,))

    async def _ask(self, call: ToolCall, effect: Effect) -> Asked:
        await self.told()  # the editor must know the call that it asks for
        return await ask(self._client, self._id, self._updates, call, effect)

    def _tell(self, updates: Sequence[Any]) -> None:
        for update in updates:
            self._outgoing.put_nowait(update)

    async def _send(self) -> None:
        """One update after the other, in the order in which things happened."""
        while True:
            update = await self._outgoing.get()
            try:
                await self._client.session_update(session_id=self._id, update=update)
            except Exception as error:  # noqa: BLE001 - a prompt must not wait for ever for what can't be told
                logging.warning("an update of %s could not be told: %s", self._id, error)
                if isinstance(error, ConnectionError):
                    self.cancel()  # nobody is there to see it
            finally:
                self._outgoing.task_done()


def refused(message: str) -> RequestError:
    """The editor asked for what can't be done."""
    return RequestError(-32602, message)


def _effort_of(session: Session) -> Effort:
    """What a session was asked for last."""
    changes = session.of("effort")
    return changes[-1].data["effort"] if changes else session.header.effort
