"""Services outside of a session's workspace: code index, web search, page fetch, MCP tools. Each is a protocol, and absent by default.

Settings decide which of them a policy is offered. An offered service must exist, so that no policy learns to call a missing one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # tools are given services
    from etude.agent.harness.tools.tool import ToolContext, ToolResult
    from etude.agent.harness.truncation import Keep


@dataclass(frozen=True)
class CodeHit:
    """One hit of a code search. Lines count from 1, both inclusive. `symbol` may be empty."""

    path: str
    first_line: int
    last_line: int
    symbol: str
    text: str
    score: float


class CodeIndex(Protocol):
    """Semantic search of a codebase."""

    async def search(self, query: str, *, limit: int, under: str | None) -> Sequence[CodeHit]:
        """The hits, best first, ties by path. `under`: only files below this folder."""
        ...


@dataclass(frozen=True)
class WebHit:
    """One result of a web search."""

    title: str
    url: str
    text: str


class WebError(Exception):
    """A search or a page failed; the message is for the model."""


class WebSearch(Protocol):
    """A provider of web search. Raises WebError."""

    async def search(self, query: str, limit: int) -> Sequence[WebHit]: ...


class WebFetch(Protocol):
    """A provider of web pages as text. Raises WebError."""

    async def fetch(self, url: str) -> str: ...


class ExternalTool(Protocol):
    """A tool of an external server: a `Tool` of the harness with the server's schema."""

    @property
    def name(self) -> str: ...
    @property
    def keep(self) -> Keep: ...
    @property
    def parameters(self) -> Collection[str]: ...
    @property
    def schema(self) -> Mapping[str, Any]: ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Call the tool. Raises ToolError if it can't answer."""
        ...


@dataclass(frozen=True)
class AgentServices:
    """The services of one session, absent by default. Web and `mcp` must stay absent in training and benches (promise 10)."""

    code_index: CodeIndex | None = None
    web_search: WebSearch | None = None
    web_fetch: WebFetch | None = None
    mcp: tuple[ExternalTool, ...] = ()  # offered behind the preset's own, and part of the harness hash

    def require(self, *, codebase_search: bool, web: bool) -> None:
        """Raise ValueError if settings offer a tool whose service is missing."""
        if codebase_search and self.code_index is None:
            raise ValueError(
                "harness.codebase_search is on, but the session has no code index: give one, or switch it off"
            )
        if web and (self.web_search is None or self.web_fetch is None):
            raise ValueError(
                "harness.web is on, but the session has no provider: give a search address, or switch it off"
            )
