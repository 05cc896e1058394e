"""An endpoint in this process, for as long as a block runs."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import uvicorn

from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.server import LOOPBACK, make_app

# Agents that stream keep connections open; those left at the end are closed after this.
LAST_WORDS_S = 2


class UnprotectedEndpoint(ValueError):
    """The endpoint would be open to other machines without a key."""


class QuietServer(uvicorn.Server):
    """Leaves signals to the caller that runs the process."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


def listening_socket(host: str, port: int) -> tuple[socket.socket, str]:
    """A bound socket and its address, e.g. http://127.0.0.1:40123; port 0 takes a free one. Raises OSError if it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By its protocol asyncio knows a socket for which to switch Nagle's algorithm off: else every answer waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise
    name = f"[{host}]" if ":" in host else host
    return listening, f"http://{name}:{listening.getsockname()[1]}"


@contextlib.asynccontextmanager
async def serving(
    book: SessionRegistry, *, host: str = "127.0.0.1", port: int = 0, operator_key: str = ""
) -> AsyncIterator[str]:
    """The endpoint's address, e.g. http://127.0.0.1:40123; port 0 takes a free one. On leaving, open sessions are ended. Raises
    OSError if the address is taken, Exposed without an operator's key on an address that others can reach."""
    if host not in LOOPBACK and not operator_key:
        raise UnprotectedEndpoint(
            f"{host} can be reached from other machines: set ETUDE_CAPTURE_KEY, which then makes sessions"
        )
    listening, address = listening_socket(host, port)
    app = make_app(book, operator_key=operator_key, hosts=LOOPBACK if host in LOOPBACK else None)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=LAST_WORDS_S)
    server = QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.01)
        yield address
    finally:
        await book.close()
        server.should_exit = True
        await asyncio.wait((task,))  # on a stop, the process cancels it together with us
        listening.close()
