"""Which servers of projects a person has let start, remembered by a hash of what would be started or asked, and where.

A repository's `.mcp.json` is somebody else's words: started unasked it would run anything, and with `${NAME}` in a header it would
send away whatever the environment holds. A change of a server's description needs a new confirmation.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

from etude.agent.harness.mcp.server import McpServer
from etude.core.files import replace_file

# How a person is asked; the server's `shown` and `source` say for what.
Approve = Callable[[McpServer], Awaitable[bool]]


class ServerTrust:
    """The approvals in one JSON file; a file that isn't there holds none."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def holds(self, server: McpServer, folder: Path) -> bool:
        return server.trusted or server.digest(folder) in self._approved()

    def grant(self, server: McpServer, folder: Path) -> None:
        """Remember an approval. The file is replaced whole."""
        rows = {**self._approved(), server.digest(folder): f"{server.name}: {server.shown} in {folder}"}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self._file, json.dumps(rows, indent=1))

    def _approved(self) -> dict[str, str]:
        if not self._file.is_file():
            return {}
        try:
            return dict(json.loads(self._file.read_text(encoding="utf-8")))
        except (ValueError, TypeError, RecursionError) as error:
            raise OSError(
                f"{self._file} can't be read ({error}): remove it, and each server will need confirmation again"
            ) from error
