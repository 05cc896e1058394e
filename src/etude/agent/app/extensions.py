"""What a session can use beyond its folder: the code index, the web, MCP servers. They are opened for one session and closed with it.

If one of them is unavailable, the user gets one line and the session continues without it. A preset with a trained vocabulary gets no
extensions, because the model was not trained on their tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from etude.agent.app.config import load_config
from etude.agent.app.errors import UsageError
from etude.agent.app.indexing import IndexUnavailable, folder_index
from etude.agent.app.user_files import trust_file
from etude.agent.harness.mcp.config import project_servers
from etude.agent.harness.mcp.server import McpConfigError, McpServer
from etude.agent.harness.mcp.servers import McpServers
from etude.agent.harness.mcp.trust import Approve, ServerTrust
from etude.agent.harness.presets.preset import preset
from etude.agent.harness.services import AgentServices
from etude.agent.harness.settings import HarnessSettings
from etude.sandbox.egress.address import AddressError

# Receives one line for the user.
NoticeSink = Callable[[str], None]


@dataclass(frozen=True)
class ExtensionOptions:
    """The extensions that flags and settings request.

    `search` is the address of a web search, "" for none. `config` is the file with the user's MCP servers, "" for none. `signals` None
    keeps the current setting.
    """

    index: bool = False
    mcp: bool = False
    search: str = ""
    config: str = ""
    signals: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """The options as a background agent's record keeps them. They hold no secret, because servers stay in their file."""
        return asdict(self)

    def user_servers(self) -> list[McpServer]:
        """The user's MCP servers. Raises UsageError for an invalid file."""
        return load_config(Path(self.config))[0].servers(self.config) if self.config else []


class Extensions:
    """The extensions of one session. `services` is passed to `build_agent`. `problems` lists what is unavailable, already reported."""

    def __init__(self, tell: NoticeSink) -> None:
        self.services = AgentServices()
        self.problems: list[str] = []
        self._on_notice = tell
        self._servers: McpServers | None = None

    @classmethod
    async def open(
        cls, options: ExtensionOptions, folder: Path, settings: HarnessSettings, tell: NoticeSink, *,
        approve: Approve | None = None, given: Sequence[McpServer] = (),
    ) -> Extensions:  # fmt: skip
        """Open what `options` request. Never raises for an unavailable extension.

        `approve` asks the user about servers that a project describes; without it they are left out. `given` are servers of an editor.
        """
        extensions = cls(tell)
        words = _capabilities(settings.preset)
        if not words:
            if options.mcp and given:
                extensions.report(f"the preset {settings.preset} is a trained vocabulary: it takes no MCP servers")
            return extensions
        if options.index and "codebase_search" in words:
            extensions._open_index(folder)
        if options.search and "web_search" in words:
            extensions._open_web(options.search)
        if options.mcp:
            await extensions._start_mcp([*given, *options.user_servers()], folder, approve)
        return extensions

    def apply(self, settings: HarnessSettings) -> HarnessSettings:
        """The settings, with tools switched on only for the extensions that are available."""
        return settings.model_copy(
            update={
                "codebase_search": self.services.code_index is not None,
                "web": self.services.web_search is not None,
            }
        )

    def describe_servers(self) -> list[str]:
        """One line for each running MCP server, with its tools, then one for each problem."""
        by_server: dict[str, list[str]] = {}
        for tool in self._servers.tools if self._servers else ():
            by_server.setdefault(tool.connection.server.name, []).append(tool.remote)
        return [f"{name}: {', '.join(tools)}" for name, tools in sorted(by_server.items())] + self.problems

    async def close(self) -> None:
        """End the servers. Safe to call twice."""
        if self._servers is not None:
            await self._servers.close()

    def _open_index(self, folder: Path) -> None:
        try:
            self.services = replace(self.services, code_index=folder_index(folder, self._on_notice))
        except IndexUnavailable as reason:
            self.report(f"no code search here: {reason}")

    def _open_web(self, search: str) -> None:
        from etude.agent.harness.web.fetch import PageFetch
        from etude.agent.harness.web.searx import SearxSearch

        try:
            extensions = SearxSearch(search)
        except AddressError as error:
            raise UsageError(f"the address of the web search: {error}") from error
        self.services = replace(self.services, web_search=extensions, web_fetch=PageFetch())

    async def _start_mcp(self, own: Sequence[McpServer], folder: Path, approve: Approve | None) -> None:
        try:
            project = project_servers(folder)
        except McpConfigError as error:
            self.report(str(error))
            project = []
        if not own and not project:
            return
        self._servers = await McpServers.start([*own, *project], folder, trust=server_trust(), approve=approve)
        for problem in self._servers.problems:
            self.report(problem)
        self.services = replace(self.services, mcp=self._servers.tools)

    def report(self, line: str) -> None:
        """Report in one line an extension that the session works without."""
        self.problems.append(line)
        self._on_notice(line)


def server_trust() -> ServerTrust:
    """The project MCP servers that the user approved."""
    return ServerTrust(trust_file())


def _capabilities(name: str) -> set[str]:
    """What the tools of a preset do. Empty for a trained vocabulary."""
    extensions = preset(name)
    return {extensions.does(tool) for tool in extensions.tools} if extensions.skinned else set()
