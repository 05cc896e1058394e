"""Where MCP servers are described: `.mcp.json` of the project, in the shape that other agents read too, and the `[mcp]` tables of
a person's settings (`face.config` reads the file).

    {"mcpServers": {"tickets": {"command": "npx", "args": ["-y", "tickets-mcp"], "env": {"TOKEN": "${TICKETS_TOKEN}"}},
                    "search": {"type": "http", "url": "https://search.example/mcp", "headers": {"Authorization": "Bearer ${KEY}"}}}}

    [mcp.tickets]
    command = "npx"
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from etude.agent.harness.mcp.server import McpConfigError, McpServer
from etude.agent.workspace.bounded_file import FileRefused, decode_text, read_inside
from etude.core.trace.unicode import whole

PROJECT_FILE = ".mcp.json"
# A longer one describes no servers.
MAX_BYTES = 1 << 20
# Field -> what it must be, in words, and the check.
_TEXT = ("a text", lambda value: isinstance(value, str))
_TEXTS = ("a list of texts", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value))
_TABLE = (
    "a table of texts",
    lambda value: isinstance(value, dict) and all(isinstance(one, str) for one in value.values()),
)
_SECONDS = ("a number of seconds above 0", lambda value: type(value) in (int, float) and value > 0)
_FIELDS = {
    "command": _TEXT, "args": _TEXTS, "env": _TABLE, "cwd": _TEXT, "url": _TEXT, "headers": _TABLE,
    "timeout_s": _SECONDS, "startup_timeout_s": _SECONDS,
}  # fmt: skip
_HTTP = ("http", "streamable-http", "streamableHttp")


def project_servers(folder: Path) -> list[McpServer]:
    """Those of `.mcp.json` in a folder, untrusted; none without the file. Fields that only other agents know are left aside,
    and a server with `"disabled": true` is left out. Raises McpConfigError, also for a file that is a link out of the folder."""
    file = folder / PROJECT_FILE
    try:
        data = read_inside(folder, PROJECT_FILE, MAX_BYTES)
    except FileRefused as error:
        raise McpConfigError(f"{error}; its MCP servers are left out") from None
    if data is None:
        return []
    try:
        document = whole(json.loads(decode_text(data)))
    except (ValueError, RecursionError) as error:
        raise McpConfigError(f"{file} is not JSON: {error}; repair it or move it away") from None
    rows = document.get("mcpServers") if isinstance(document, dict) else None
    if not isinstance(rows, dict):
        raise McpConfigError(
            f'{file} has no "mcpServers" table; it looks like {{"mcpServers": {{"name": {{"command": …}}}}}}'
        )
    kept = {name: row for name, row in rows.items() if not (isinstance(row, dict) and row.get("disabled") is True)}
    return servers_of(kept, str(file), trusted=False)


def servers_of(rows: Mapping[str, Any], source: str, *, trusted: bool) -> list[McpServer]:
    """Servers by name, in order. A trusted source knows our fields and no others. Raises McpConfigError."""
    return [_server(name, row, source, trusted) for name, row in rows.items()]


def _server(name: str, row: Any, source: str, trusted: bool) -> McpServer:
    place = f"{source}: MCP server {name!r}"
    if not isinstance(row, dict):
        raise McpConfigError(f"{place} must be a table, not {json.dumps(row, default=str)[:60]}")
    kind = row.get("type", "http" if "url" in row else "stdio")
    if kind not in ("stdio", *_HTTP):
        raise McpConfigError(f"{place} has the type {kind!r}; stdio and http (streamable HTTP) are known")
    if trusted and (strange := set(row) - set(_FIELDS) - {"type"}):
        raise McpConfigError(f"{place}: unknown field {min(strange)!r}; known are {', '.join(_FIELDS)}")
    needed = "command" if kind == "stdio" else "url"
    if not row.get(needed):
        raise McpConfigError(f"{place} needs a {needed!r}, as a server over {kind}")
    given = {key: row[key] for key in _FIELDS if key in row and key != ("url" if kind == "stdio" else "command")}
    for key, value in given.items():
        words, fits = _FIELDS[key]
        if not fits(value):  # the value itself may be a secret
            raise McpConfigError(f"{place}: {key!r} must be {words}")
    if "args" in given:
        given["args"] = tuple(given["args"])
    return McpServer(name, **given, trusted=trusted, source=source)
