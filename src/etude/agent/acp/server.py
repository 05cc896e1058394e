"""The protocol's methods: sessions made, taken up again, prompted, broken off; approval policies as modes, effort as an option."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import unquote, urlsplit

import acp
from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    ClientCapabilities,
    FileSystemCapabilities,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    SessionCapabilities,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionInfo,
    SessionListCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
)
from acp.stdio import stdio_streams

from etude import __version__
from etude.agent.acp.conversation import Conversation, EditorSessionOptions, is_mode, modes, request_error
from etude.agent.acp.editor_folder import EditorFolder
from etude.agent.acp.lines import MAX_LINE_BYTES, pump
from etude.agent.app.chat_session import new_session_id
from etude.agent.app.errors import AppError, UsageError
from etude.agent.app.model import AgentModel
from etude.agent.app.runtime import SessionRuntime, collecting_signals
from etude.agent.app.workspace_access import WorkspaceAccess, open_workspace
from etude.agent.git_links.home import session_files, sessions_home, sessions_of
from etude.agent.harness.mcp.server import McpConfigError, McpServer
from etude.core.trace.entry import Effort
from etude.core.trace.migrations import SessionError
from etude.core.trace.reader import read_session
from etude.sandbox.errors import SandboxError

# A prompt's blocks as the text of a request: text as it is, files that were attached with their path, links named.


class UnusableBlock(Exception):
    """A block that can't be put into words; the message says which."""


def text_of(blocks: Sequence[Any], folder: Path) -> str:
    """Raises UnusableBlock for pictures and sounds, and for a prompt that says nothing."""
    text = "\n".join(_block(block, folder) for block in blocks)
    if not text.strip():
        raise UnusableBlock("an empty prompt: say what should be done")
    return text


def _block(block: Any, folder: Path) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        return f"[{place(block.uri, folder)}]"
    if block.type == "resource" and (text := getattr(block.resource, "text", None)) is not None:
        return f'<file path="{place(block.resource.uri, folder)}">\n{text}\n</file>'
    kind = "binary resource" if block.type == "resource" else block.type
    raise UnusableBlock(f"this agent reads text only, not the {kind} of the prompt: describe it, or give a path")


def place(uri: str, folder: Path) -> str:
    """A `file:` address as a path, relative to the folder where it is in it; any other as it is."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return uri
    path = Path(unquote(parts.path))
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


_TITLE_CHARS = 80


class AcpServer:
    """The part of an `acp.Agent` that we offer: one connection to one editor, with as many sessions at once as it likes."""

    def __init__(self, setup: EditorSessionOptions) -> None:
        self._setup = setup
        self._client: Client | None = None
        self._offered = ClientCapabilities()
        self._sessions: dict[str, Conversation] = {}
        self._model: AgentModel | None = None
        self._opening = asyncio.Lock()

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: Any,
    ) -> InitializeResponse:
        self._offered = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION) or acp.PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True),
                session_capabilities=SessionCapabilities(list=SessionListCapabilities()),
            ),
            agent_info=Implementation(name="etude", title="Etude", version=__version__),
        )

    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
        **_: Any,
    ) -> NewSessionResponse:
        session = await self._open(new_session_id(), cwd, mcp_servers or [], additional_directories or [])
        return NewSessionResponse(
            session_id=session.id, modes=modes(session.approver.policy), config_options=_options(session)
        )

    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[Any] | None = None,
        additional_directories: list[str] | None = None,
        **_: Any,
    ) -> LoadSessionResponse:
        """Sends everything that happened again before the answer."""
        file = next((file for file in session_files(sessions_home()) if file.stem == session_id), None)
        if file is None:
            raise RequestError.resource_not_found(session_id)
        try:
            recorded = read_session(file)
        except SessionError as error:
            raise request_error(str(error)) from error
        if (old := self._sessions.pop(session_id, None)) is not None:
            await old.close()
        session = await self._open(session_id, cwd, mcp_servers or [], additional_directories or [], file)
        session.replay(recorded)
        await session.flush()
        return LoadSessionResponse(modes=modes(session.approver.policy), config_options=_options(session))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> ListSessionsResponse:
        """Those of a folder, the newest first; all of them on one page."""
        found: list[SessionInfo] = []
        for file, header, _entries in sessions_of(sessions_home(), Path(cwd or "/")):
            title = str(header.facts.get("instruction", "")).strip().split("\n")[0][:_TITLE_CHARS]
            updated = datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat()
            place = header.facts["workspace"]
            found.append(SessionInfo(session_id=file.stem, cwd=place, title=title or None, updated_at=updated))
        return ListSessionsResponse(sessions=found[::-1])

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        session = self._session(session_id)
        try:
            text = text_of(prompt, session.folder)
        except UnusableBlock as error:
            raise request_error(str(error)) from error
        return PromptResponse(stop_reason=await session.prompt(text))

    async def cancel(self, session_id: str, **_: Any) -> None:
        self._session(session_id).cancel()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> SetSessionModeResponse:
        if not is_mode(mode_id):
            raise request_error(f"there is no mode {mode_id!r}")
        self._session(session_id).approver.policy = mode_id  # pyright: ignore[reportAttributeAccessIssue] - one of them
        return SetSessionModeResponse()

    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **_: Any
    ) -> SetSessionConfigOptionResponse:
        session = self._session(session_id)
        if config_id != "effort" or value not in get_args(Effort):
            raise request_error(f"effort is low, medium or high; there is no {config_id} {value!r}")
        await session.set_effort(value)  # pyright: ignore[reportArgumentType] - one of them
        return SetSessionConfigOptionResponse(config_options=_options(session))

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        self._sessions.clear()
        if self._model is not None and (closing := self._model.close()) is not None:
            await closing

    async def _open(
        self, session_id: str, cwd: str, given: list[Any], additional: list[str], session: Path | None = None
    ) -> Conversation:
        """Raises RequestError, in words with the remedy, for whatever keeps it from being opened."""
        if not Path(cwd).is_absolute():
            raise request_error(f"{cwd!r} is no absolute path; give that of the folder to work in")
        try:
            servers = [_server(one) for one in given]
            async with AsyncExitStack() as held:
                made = await self._conversation(session_id, Path(cwd), additional, servers, held, session)
                self._sessions[session_id] = made
        except (McpConfigError, AppError, SandboxError) as error:
            raise request_error(str(error)) from error
        if additional and self._setup.walls == "workspace":
            made.mention(
                f"{', '.join(additional)}: can be read, not written; the sandbox opens {cwd} alone (--sandbox none)"
            )
        return made

    async def _conversation(
        self, session_id: str, folder: Path, additional: list[str], servers: list[McpServer], held: AsyncExitStack, session: Path | None
    ) -> Conversation:  # fmt: skip
        assert self._client is not None  # set when the connection was made
        setup = self._setup
        place = WorkspaceAccess.validated(folder, setup.walls, setup.network, tuple(Path(one) for one in additional))
        async with self._opening:
            self._model = self._model or await setup.model()
        inner = await held.enter_async_context(open_workspace(place, (setup.choice.key_env,)))
        await held.enter_async_context(collecting_signals(place.folder, setup.wanted.signals))
        files = self._offered.fs or FileSystemCapabilities()
        runtime = SessionRuntime(setup.choice, self._model, place, EditorFolder(inner, self._client, session_id, files))
        return Conversation(setup, self._client, session_id, runtime, held.pop_all(), servers, session=session)

    def _session(self, session_id: str) -> Conversation:
        if session_id not in self._sessions:
            raise request_error(
                f"no session {session_id!r} is open; make one with session/new or take it up with session/load"
            )
        return self._sessions[session_id]


class NoEditor(UsageError):
    """The protocol can't be spoken over this stdin and stdout."""


async def serve(setup: EditorSessionOptions) -> None:
    """Over stdin and stdout, until the editor closes them. Raises NoEditor."""
    for stream in (sys.stdin, sys.stdout):
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise NoEditor(f"{stream.name} is a file; an editor starts this command and speaks to it over pipes")
    if sys.stdin.isatty():
        print(
            "etude agent --acp waits for an editor to speak the Agent Client Protocol; Ctrl-C ends it", file=sys.stderr
        )
    server = AcpServer(setup)
    editor, answers = await stdio_streams()
    lines = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    pumping = asyncio.create_task(pump(editor, lines, answers))
    try:
        # The SDK answers for the methods that the server lacks.
        await acp.run_agent(cast(acp.Agent, server), answers, lines)
    finally:
        pumping.cancel()
        await server.close()


def _server(given: Any) -> McpServer:
    """An MCP server that the editor's own settings name: the person trusts it already."""
    if isinstance(given, McpServerStdio):
        env = {one.name: one.value for one in given.env}
        return McpServer(
            given.name, command=given.command, args=tuple(given.args), env=env, trusted=True, source="editor"
        )
    if isinstance(given, HttpMcpServer):
        headers = {one.name: one.value for one in given.headers}
        return McpServer(given.name, url=given.url, headers=headers, trusted=True, source="editor")
    raise McpConfigError(f"the editor's MCP server {given.name!r} is over {given.type}; stdio and http are known")


def _options(session: Conversation) -> list[Any]:
    words = [SessionConfigSelectOption(value=effort, name=effort.capitalize()) for effort in get_args(Effort)]
    return [
        SessionConfigOptionSelect(
            id="effort", name="Effort", category="thought_level", type="select",
            current_value=session.settings.effort, options=words,
        )
    ]  # fmt: skip
