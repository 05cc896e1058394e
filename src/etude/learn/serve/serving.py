"""A served model from its start to the end of its last answer."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

import uvicorn

from etude.agent.proxy.server import LOOPBACK
from etude.agent.proxy.serving import QuietServer, UnprotectedEndpoint, listening_socket
from etude.core.events.stopping import SIGNALS, handled_in_loop
from etude.learn.engine.service import EngineThread
from etude.learn.serve.app import ServeState, make_app
from etude.learn.serve.engine_client import EngineClient
from etude.learn.serve.metrics import ServeMetrics
from etude.learn.serve.served_model import ServedModel

# Answers in progress get this long after the first signal; a second signal ends them at once.
DRAIN_S = 60


@dataclass(frozen=True)
class ServeOptions:
    """Where and for whom the server listens. `waiting`: answers that may wait for a session."""

    host: str = "127.0.0.1"
    port: int = 8000
    sessions: int = 8
    waiting: int = 64
    api_key: str = ""


@dataclass
class RunningServer:
    """`address` without a path, e.g. http://127.0.0.1:8000."""

    address: str
    state: ServeState
    server: uvicorn.Server
    task: asyncio.Task[None]

    def stop(self) -> None:
        """Refuses new requests and lets answers end; called again, ends them at once."""
        self.server.force_exit = self.state.stopping
        self.server.should_exit = self.state.stopping = True


@contextlib.asynccontextmanager
async def running_server(
    model: ServedModel, thread: EngineThread, options: ServeOptions
) -> AsyncIterator[RunningServer]:
    """Serves until the block is left; then answers in progress end first. Raises OSError for a port that is taken, UnprotectedEndpoint
    for an address that other machines reach without an API key."""
    local = options.host in LOOPBACK
    if not local and not options.api_key:
        raise UnprotectedEndpoint(
            f"--host {options.host} can be reached from other machines: set a key and name its variable with --api-key-env"
        )
    listening, address = listening_socket(options.host, options.port)

    async def reading() -> Mapping[str, float]:
        return await asyncio.wrap_future(thread.call(lambda core: core.stats.reading()))

    client = EngineClient(thread, sessions=options.sessions, waiting=options.waiting)
    state = ServeState(model, client, reading, options.api_key, metrics=ServeMetrics())
    app = make_app(state, LOOPBACK if local else None)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=DRAIN_S)
    server = QuietServer(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    running = RunningServer(address, state, server, task)
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.01)
        yield running
    finally:
        if not state.stopping:
            running.stop()
        await asyncio.wait((task,))
        listening.close()


async def serve_until_stopped(
    model: ServedModel, thread: EngineThread, options: ServeOptions, report: Callable[[str], None]
) -> RunningServer:
    """Serves until SIGINT, SIGTERM or SIGHUP, then drains. `report` receives lines for the person."""
    async with running_server(model, thread, options) as running:

        def stop(number: int) -> None:
            running.stop()
            report(f"{signal.Signals(number).name}: {running.state.client.in_flight} answers are in progress")

        with handled_in_loop((signal.SIGINT, *SIGNALS), stop):
            report(
                f"{model.name} answers at {running.address}/v1 with {options.sessions} sessions of {model.window} tokens"
            )
            await asyncio.wait((running.task,))
        return running
