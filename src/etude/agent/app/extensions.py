"""What a session may use beyond its folder: the code index, the web, MCP servers. Opened for one session, told of, and closed with it.

Whatever can't be had costs one line for the person, and the session goes on without it. A preset that is a trained vocabulary has no
words for any of it and is offered nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from etude.agent.app.config import load_config
from etude.agent.app.errors import BadUse
from etude.agent.app.indexing import IndexUnwanted, folder_index
from etude.agent.app.user_files import trust_file
from etude.agent.harness.mcp.config import project_servers
from etude.agent.harness.mcp.server import McpConfigError, Server
from etude.agent.harness.mcp.servers import Servers
from etude.agent.harness.mcp.trust import Approve, Trust
from etude.agent.harness.presets.preset import preset
from etude.agent.harness.services import Services
from etude.agent.harness.settings import HarnessSettings
from etude.sandbox.egress.address import AddressError

# One line for the person, as things happen.
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What flags and settings ask for. `search` is the address of a web search, "" for none; `config` the file whose MCP servers are
    the person's own, "" for none; `signals` None: as it is."""

    index: bool = False
    mcp: bool = False
    search: str = ""
    config: str = ""
    signals: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Nothing in it is a secret: servers stay in their file."""
        return asdict(self)

    def own_servers(self) -> list[Server]:
        """Raises BadUse where the file can't be used."""
        return load_config(Path(self.config))[0].servers(self.config) if self.config else []


class Offers:
    """One session's. `services` are for `build_agent`; `problems` what could not be had, told already."""

    def __init__(self, tell: Tell) -> None:
        self.services = Services()
        self.problems: list[str] = []
        self._tell = tell
        self._servers: Servers | None = None

    @classmethod
    async def open(
        cls, wanted: Wanted, folder: Path, settings: HarnessSettings, tell: Tell, *,
        approve: Approve | None = None, given: Sequence[Server] = (),
    ) -> Offers:  # fmt: skip
        """`approve` asks for servers that a project describes, which are left out without it; `given` are an editor's. Never raises for
        what can't be offered."""
        found = cls(tell)
        words = _does(settings.preset)
        if not words:
            if wanted.mcp and given:
                found.report(f"the preset {settings.preset} is a trained vocabulary: it takes no MCP servers")
            return found
        if wanted.index and "codebase_search" in words:
            found._index(folder)
        if wanted.search and "web_search" in words:
            found._web(wanted.search)
        if wanted.mcp:
            await found._mcp([*given, *wanted.own_servers()], folder, approve)
        return found

    def over(self, settings: HarnessSettings) -> HarnessSettings:
        """The settings that offer what is there, and nothing else."""
        return settings.model_copy(
            update={
                "codebase_search": self.services.code_index is not None,
                "web": self.services.web_search is not None,
            }
        )

    def servers(self) -> list[str]:
        """A line for each running MCP server, with its tools; then what could not be had."""
        by_server: dict[str, list[str]] = {}
        for tool in self._servers.tools if self._servers else ():
            by_server.setdefault(tool.connection.server.name, []).append(tool.remote)
        return [f"{name}: {', '.join(tools)}" for name, tools in sorted(by_server.items())] + self.problems

    async def close(self) -> None:
        """End the servers. Safe to call twice."""
        if self._servers is not None:
            await self._servers.close()

    def _index(self, folder: Path) -> None:
        try:
            self.services = replace(self.services, code_index=folder_index(folder, self._tell))
        except IndexUnwanted as reason:
            self.report(f"no code search here: {reason}")

    def _web(self, search: str) -> None:
        from etude.agent.harness.web.fetch import PageFetch
        from etude.agent.harness.web.searx import SearxSearch

        try:
            found = SearxSearch(search)
        except AddressError as error:
            raise BadUse(f"the address of the web search: {error}") from error
        self.services = replace(self.services, web_search=found, web_fetch=PageFetch())

    async def _mcp(self, own: Sequence[Server], folder: Path, approve: Approve | None) -> None:
        try:
            project = project_servers(folder)
        except McpConfigError as error:
            self.report(str(error))
            project = []
        if not own and not project:
            return
        self._servers = await Servers.start([*own, *project], folder, trust=trust(), approve=approve)
        for problem in self._servers.problems:
            self.report(problem)
        self.services = replace(self.services, mcp=self._servers.tools)

    def report(self, line: str) -> None:
        """Inform the person, in one line, of what the session goes on without."""
        self.problems.append(line)
        self._tell(line)


def trust() -> Trust:
    """Which servers of projects this person has let start."""
    return Trust(trust_file())


def _does(name: str) -> set[str]:
    """What the tools of a preset do, all of them on offer; nothing for a trained vocabulary."""
    found = preset(name)
    return {found.does(tool) for tool in found.tools} if found.skinned else set()
