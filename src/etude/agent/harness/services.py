"""What a session may use that lies outside of its workspace: seams, each with a protocol and nothing behind it by default.

Settings say which of them a policy is offered; a session that offers one must have it, so that none learns to call what isn't there.
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
    """One piece of code that a search found: lines from 1, both inclusive; `symbol` may be empty."""

    path: str
    first_line: int
    last_line: int
    symbol: str
    text: str
    score: float


class CodeIndex(Protocol):
    """Search of a codebase by meaning."""

    async def search(self, query: str, *, limit: int, under: str | None) -> Sequence[CodeHit]:
        """Best first, ties by path; `under`: only files below this folder."""
        ...


@dataclass(frozen=True)
class WebHit:
    """One result of a web search."""

    title: str
    url: str
    text: str


class WebError(Exception):
    """A search or page that can't be had, in words for the model."""


class WebSearch(Protocol):
    """Whoever searches the web. Raises WebError."""

    async def search(self, query: str, limit: int) -> Sequence[WebHit]: ...


class WebFetch(Protocol):
    """Whoever fetches a page as text. Raises WebError."""

    async def fetch(self, url: str) -> str: ...


class ServedTool(Protocol):
    """A tool that a server beside the session offers: a `Tool` of the harness that brings its own schema."""

    @property
    def name(self) -> str: ...
    @property
    def keep(self) -> Keep: ...
    @property
    def parameters(self) -> Collection[str]: ...
    @property
    def schema(self) -> Mapping[str, Any]: ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        """Raises ToolError for whatever keeps it from answering."""
        ...


@dataclass(frozen=True)
class Services:
    """Absent by default; the web ones and `mcp` must stay so in training and benches (promise 10)."""

    code_index: CodeIndex | None = None
    web_search: WebSearch | None = None
    web_fetch: WebFetch | None = None
    mcp: tuple[ServedTool, ...] = ()  # offered behind the preset's own, and part of the harness hash

    def require(self, *, codebase_search: bool, web: bool) -> None:
        """Raises ValueError where settings offer a tool whose service is missing."""
        if codebase_search and self.code_index is None:
            raise ValueError(
                "harness.codebase_search is on, but the session has no code index: give one, or switch it off"
            )
        if web and (self.web_search is None or self.web_fetch is None):
            raise ValueError(
                "harness.web is on, but the session has no provider: give a search address, or switch it off"
            )
