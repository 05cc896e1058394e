"""A real MCP server for the tests of the client, with the official SDK: over stdio, or over HTTP on a port.

python mcp_server.py [--http PORT] [--without TOOL]
"""

from __future__ import annotations

import argparse
import asyncio
import os

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("shelf", log_level="ERROR")


@server.tool()
def add(a: int, b: int) -> str:
    """The sum of two numbers."""
    return str(a + b)


@server.tool()
def environment(name: str) -> str:
    """What a variable holds."""
    return os.environ.get(name, "nothing")


@server.tool()
async def slow(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "awake"


@server.tool()
def fail() -> str:
    """Never works."""
    raise ToolError("the shelf is empty")


@server.tool()
def long(lines: int) -> str:
    """Many lines."""
    return "\n".join(f"line {number}" for number in range(lines))


@server.tool()
def picture() -> Image:
    """A picture."""
    return Image(data=b"x" * 300, format="png")


@server.tool()
def noise() -> str:
    """Writes what is no message to stdout."""
    os.write(1, b"NOISE on stdout\n")
    os.write(2, b"NOISE on stderr\n")
    return "quiet again"


@server.tool()
def die() -> str:
    """Ends the server in the middle of the call."""
    os._exit(3)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, default=0)
    parser.add_argument("--without", default="")
    options = parser.parse_args()
    if options.without:
        server.remove_tool(options.without)
    if options.http:
        server.run("streamable-http", port=options.http)
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
