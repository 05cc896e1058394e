"""One running server: started when it is opened, started again once when it dies, ended with the session.

The SDK's client lives in one task from beginning to end (its cancel scopes ask for that); calls come from any task. A call that was
under way when its server died is never made twice: its effects are unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etude.agent.harness.mcp.log import ServerLog
from etude.agent.harness.mcp.server import McpServer
from etude.core.redact.keys import without

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool
if TYPE_CHECKING:
    from mcp_types import CallToolResult

# Pages of a tool list: a server that always names a next one must not hang the start.
_MAX_PAGES = 100
_QUIET_S = 300.0  # a server over HTTP may hold its stream open without a word, as the MCP transports allow it


class McpError(Exception):
    """A server that can't be started or did not answer, in words for the model and the person; holds no secret."""


@dataclass
class _RunningClient:
    """A client and the task that it lives in."""

    client: Client
    leave: asyncio.Event
    task: asyncio.Task[None]
    log: ServerLog


class McpConnection:
    """Of one session. `folder` is where a server over stdio starts, unless it names another."""

    def __init__(self, server: McpServer, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self.server = server
        self._folder = folder
        environ = os.environ if environ is None else environ
        self._filled = server.fill_variables(environ)
        self._secrets = server.secrets(environ)
        self._running: _RunningClient | None = None
        self._restarts = 0
        self._handshake = "auto"  # how the SDK begins a session; "legacy" once a server turned out to be older
        self._restarting = asyncio.Lock()

    async def open(self) -> list[Tool]:
        """Start it; the tools that it has. Raises McpError."""
        self._running = held = await self._start()
        try:
            async with asyncio.timeout(self.server.startup_timeout_s):
                return await _all_tools(held.client)
        except TimeoutError:
            await self.close()
            raise McpError(
                f"the MCP server {self.server.name} lists no tools within {self.server.startup_timeout_s:g} s"
            ) from None
        except Exception as error:
            await self.close()
            raise McpError(
                self._hidden(f"the MCP server {self.server.name} can't list its tools: {_innermost_reason(error)}")
            ) from error

    async def call(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """The answer as text, and whether the tool says that it failed. Raises McpError."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        held, limit_s = self._running, self.server.timeout_s
        if held is None:
            raise McpError(f"the MCP server {self.server.name} is not running any more")
        try:
            result = await held.client.call_tool(name, arguments, read_timeout_seconds=limit_s)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                raise McpError(f"the MCP server {self.server.name} did not answer within {limit_s:g} s") from error
            if error.code == CONNECTION_CLOSED:
                raise McpError(await self._restart(held)) from error
            raise McpError(self._hidden(f"the MCP server {self.server.name} refused: {error.message}")) from error
        except Exception as error:
            words = f"the MCP server {self.server.name} gave no answer that can be used: {_innermost_reason(error)}"
            raise McpError(self._hidden(words)) from error
        return self._hidden(text_of(result)), result.is_error

    async def close(self) -> None:
        """End the server and all that its client started. Safe to call twice."""
        held, self._running = self._running, None
        if held is not None:
            held.leave.set()
            await asyncio.wait((held.task,))
            held.log.close()

    async def _restart(self, dead: _RunningClient) -> str:
        """Restart a server that died, once; returns the text for the model."""
        name = self.server.name
        async with self._restarting:
            if self._running is dead:
                await self.close()
                if self._restarts:
                    return f"the MCP server {name} died again and stays down for this session; work without it"
                self._restarts += 1
                try:
                    self._running = await self._start()
                except McpError as error:
                    return f"the MCP server {name} died and can't be started again: {error}"
        return (
            f"the MCP server {name} died during this call and was started again; the call may have done its work or not"
        )

    async def _start(self) -> _RunningClient:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[Client] = loop.create_future()
        leave, log = asyncio.Event(), ServerLog(self.server.name)
        task = loop.create_task(self._run_client(ready, leave, log))
        done, _ = await asyncio.wait(
            (ready, task), timeout=self.server.startup_timeout_s, return_when="FIRST_COMPLETED"
        )
        if ready in done and ready.exception() is None:
            return _RunningClient(ready.result(), leave, task, log)
        task.cancel()
        await asyncio.wait((task,))
        why = (
            _innermost_reason(ready.exception())
            if ready in done
            else f"no answer within {self.server.startup_timeout_s:g} s"
        )
        said = log.last_line()
        log.close()
        words = f"the MCP server {self.server.name} can't be started ({self.server.shown}): {why}"
        raise McpError(self._hidden(words + (f"; it says: {said}" if said else "")))

    async def _run_client(self, ready: asyncio.Future[Client], leave: asyncio.Event, log: ServerLog) -> None:
        """The client's whole life, in one task."""
        from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

        log.hear_sdk()
        try:
            async with contextlib.AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack, log))
                # A server that knows no newer one isn't asked for it again: some give no answer, and the SDK waits 10 s for it.
                self._handshake = "legacy" if client.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS else "auto"
                ready.set_result(client)
                await leave.wait()
        except Exception as error:  # noqa: BLE001 - handed to the caller that waits for the start; an end that fails has no one left to tell
            if not ready.done():
                ready.set_exception(error)

    async def _client(self, stack: contextlib.AsyncExitStack, log: ServerLog) -> Client:
        import httpx2
        from mcp import Client, StdioServerParameters
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client

        filled = self._filled
        if filled.url:
            limits = httpx2.Timeout(self.server.startup_timeout_s, read=_QUIET_S)
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(filled.headers), timeout=limits))
            return Client(streamable_http_client(filled.url, http_client=http), mode=self._handshake)
        started = StdioServerParameters(
            command=filled.command, args=list(filled.args), env=dict(filled.env), cwd=self._folder / filled.cwd,
            encoding_error_handler="replace",
        )  # fmt: skip
        return Client(stdio_client(started, errlog=log.stream), mode=self._handshake)

    def _hidden(self, text: str) -> str:
        for value, shown in self._secrets.items():
            text = without(text, value, shown)
        return text


async def _all_tools(client: Client) -> list[Tool]:
    page = await client.list_tools(cache_mode="bypass")
    tools = list(page.tools)
    for _ in range(_MAX_PAGES):
        if not page.next_cursor:
            return tools
        page = await client.list_tools(cursor=page.next_cursor, cache_mode="bypass")
        tools += page.tools
    raise ValueError(f"its list of tools has more than {_MAX_PAGES} pages")


def _innermost_reason(error: BaseException | None) -> str:
    """The innermost reason: task groups wrap theirs in groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (str(error) or type(error).__name__)[:300]


def text_of(result: CallToolResult) -> str:
    """All blocks in order; the structured content where there is no block at all."""
    rows = [_block(block) for block in result.content]
    if not rows and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n".join(rows) or "ok, no output"


def _block(block: Any) -> str:
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        words = f": {block.description}" if block.description else ""
        return f"[resource {block.uri}, {_media_type(block)}{words}]"
    if block.type == "resource":
        inner = block.resource
        if (text := getattr(inner, "text", None)) is not None:
            return f"[resource {inner.uri}]\n{text}"
        return f"[resource {inner.uri}, {_media_type(inner)}, {_decoded_bytes(inner.blob)} bytes, not shown]"
    return f"[{block.type}, {_media_type(block)}, {_decoded_bytes(block.data)} bytes, not shown]"  # image, audio


def _media_type(block: Any) -> str:
    return getattr(block, "mime_type", None) or "of unknown type"


def _decoded_bytes(base64: str) -> int:
    """How many bytes a base64 text holds."""
    return len(base64.rstrip("=")) * 3 // 4
