"""`etude report --serve`: the board over HTTP on loopback, read-only; no path that a client sends reaches the disk.

/                     the page; /static/NAME its scripts and styles, from the package
/api/run              title, the report's sections as HTML, problems, what there is to follow
/api/rollouts?since=G the index's rows newer than generation G (`columns.py` says the form)
/api/rollout/N        attempt N in full
/api/advisories       what the run's files warn of, as HTML
/api/curves /api/fleet /api/weights /api/audit
/api/follow           server-sent events: the state whenever it changed
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from email.message import Message
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from etude.core.events.finite import without_nan
from etude.evaluate.report.board import machines
from etude.evaluate.report.board.attempt import UNREADABLE, AttemptReader
from etude.evaluate.report.board.follow import BoardFollower
from etude.evaluate.report.collect import NotARun

# How many connections a server of threads holds at once: each has a thread, so slow clients are bounded by letting
# the oldest go.
#
# A connection waits until a request has arrived and again when it is answered; it is at work in between. One that
# waits is given up for a new one, one at work never: a person's page opens however many clients are slow.


class Connections:
    """Thread-safe. `most` is how many are held."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[socket.socket, None] = {}  # the longest waiting first
        self._working: set[socket.socket] = set()

    def __len__(self) -> int:
        with self._lock:
            return len(self._waiting) + len(self._working)

    def admit(self, connection: socket.socket) -> bool:
        """Hold a new one; False where all others are at work."""
        with self._lock:
            if len(self._waiting) + len(self._working) >= self._most:
                oldest = next(iter(self._waiting), None)
                if oldest is None:
                    return False
                del self._waiting[oldest]
                with contextlib.suppress(OSError):  # it may be gone already; its thread wakes up and ends
                    oldest.shutdown(socket.SHUT_RDWR)
            self._waiting[connection] = None
            return True

    def working(self, connection: socket.socket) -> None:
        """Its request has arrived."""
        with self._lock:
            if connection in self._waiting:  # else it was given up in this moment
                del self._waiting[connection]
                self._working.add(connection)

    def waits(self, connection: socket.socket) -> None:
        """Its request is answered."""
        with self._lock:
            if connection in self._working:
                self._working.discard(connection)
                self._waiting[connection] = None

    def gone(self, connection: socket.socket) -> None:
        """It is closed."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._working.discard(connection)


# Which requests are allowed: those of a browser on this machine that has the board's own address, and none through
# another page.
#
# A page of another site can make a browser ask any address, also loopback's; DNS can be made to name loopback. So the
# Host must be loopback by name or number with the board's port, an Origin must be the same, and a browser that says
# where a request comes from (Sec-Fetch-Site) must say that it is the board or the person. Only GET and HEAD are
# answered: there is nothing to change.


NAMES = ("127.0.0.1", "localhost", "[::1]")
SITES = {"same-origin", "none", ""}  # "none": typed, or from a bookmark
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def refusal(headers: Mapping[str, str] | Message, port: int) -> str | None:
    """Why this request is not answered, or None."""
    hosts = {f"{name}:{port}" for name in NAMES}
    named = headers.get_all("Host", []) if isinstance(headers, Message) else [headers.get("Host", "")]
    if len(named) > 1:
        return f"the request names {len(named)} hosts; send one Host"
    host = named[0] if named else ""
    if host.lower() not in hosts:
        return f"the Host {host!r} is not this board's; open http://127.0.0.1:{port}/"
    origin = headers.get("Origin", "")
    if origin and origin.lower() not in {f"http://{name}" for name in hosts}:
        return f"asked by a page of {origin!r}; the board answers its own pages alone"
    if headers.get("Sec-Fetch-Site", "") not in SITES:
        return "asked by a page of another site; the board answers its own pages alone"
    return None


HOST = "127.0.0.1"
# Each holds a thread: a browser opens six, followers of one page one.
MOST_CONNECTIONS = 256
CLIENT_S = 20.0  # of silence while a request is sent or an answer taken
HEARTBEAT_S = 15.0  # an idle stream says so now and then, which is how a closed tab is noticed
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
RUN_FILES = ("recipe.toml", "conditions.json", "sessions", "rl", "events.jsonl")


class Board:
    """A run's board. `open` binds, `serve` blocks until `close`."""

    def __init__(self, run: Path, port: int = 0) -> None:
        """Raises NotARun for a folder that holds nothing of a run, OSError for a port that is taken."""
        if not any((run / name).exists() for name in RUN_FILES):
            raise NotARun(f"{run} holds none of {', '.join(RUN_FILES)}: give the --out of an `etude run` or a bench")
        self.run = run.resolve()
        self.follower = BoardFollower(self.run)
        self.attempts = AttemptReader(self.follower.index)
        self._static = {
            path.name: path.read_bytes() for path in (files("etude.evaluate.report.board") / "static").iterdir()
        }
        self._static |= {
            name: (files("etude.evaluate.report") / name).read_bytes() for name in ("plot.css", "page.css")
        }
        self._server = _Server((HOST, port), partial(_Handler, board=self))
        self.port: int = self._server.server_address[1]

    @property
    def connections(self) -> Connections:
        return self._server.connections

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def serve(self) -> None:
        """Until `close`, or Ctrl-C."""
        self.follower.start()
        try:
            self._server.serve_forever(poll_interval=0.2)
        finally:
            self.follower.stop()
            self._server.server_close()

    def close(self) -> None:
        """Ends `serve` from another thread."""
        self._server.shutdown()

    def page(self, name: str) -> bytes | None:
        """A file of the page, None if there is none of that name."""
        return self._static.get(name)

    def answer(self, what: str, query: dict[str, list[str]]) -> tuple[str, bytes] | None:
        """Content type and body of `/api/…`, None if there is no such thing. Raises what UNREADABLE names."""
        if what == "rollouts":
            since = query.get("since", ["0"])[0]
            return "application/octet-stream", self.follower.index.pack(int(since) if since.isdigit() else 0)
        if what.startswith("rollout/") and what[8:].isdigit():
            return _as_json(self.attempts.read(int(what[8:])))
        index = self.follower.index
        made: dict[str, Callable[[], Any]] = {
            "run": self._run_facts,
            "advisories": self.follower.sections.advisories,
            "curves": self.follower.history.read,
            "fleet": lambda: machines.fleet(index),
            "weights": lambda: machines.weights(index),
            "audit": lambda: machines.audit(index),
        }
        return _as_json(made[what]()) if what in made else None

    def _run_facts(self) -> dict[str, Any]:
        read = self.follower.sections.read()
        problems = self.follower.index.problems.found | read["problems"]
        return {**read, "problems": problems, "folder": self.run.name, "state": self.follower.state()}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        self.connections = Connections(MOST_CONNECTIONS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self.connections.admit(request):
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        self.connections.gone(request)
        super().shutdown_request(request)

    def handle_error(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        """A tab that was closed amid an answer is no fault; anything else is reported on stderr."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """One connection, answered from `board`."""

    protocol_version = "HTTP/1.1"
    timeout = CLIENT_S
    server_version, sys_version = "etude", ""

    def __init__(self, *arguments: Any, board: Board) -> None:
        self._board = board
        super().__init__(*arguments)

    def do_GET(self) -> None:
        self._board.connections.working(self.connection)
        try:
            self._get()
        finally:
            self._board.connections.waits(self.connection)

    def _get(self) -> None:
        why = refusal(self.headers, self._board.port)
        if why is not None:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", (why + "\n").encode())
            return
        asked = urlsplit(self.path)
        if asked.path == "/api/follow":
            self._follow()
            return
        try:
            found = self._found(asked.path, parse_qs(asked.query))
        except UNREADABLE as error:
            words = {"error": f"{type(error).__name__}: {error}"}
            self._send(HTTPStatus.UNPROCESSABLE_ENTITY, *_as_json(words))
            return
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", f"there is no {asked.path}\n".encode())
        else:
            self._send(HTTPStatus.OK, *found)

    do_HEAD = do_GET

    def _found(self, path: str, query: dict[str, list[str]]) -> tuple[str, bytes] | None:
        if path.startswith("/api/"):
            return self._board.answer(path.removeprefix("/api/"), query)
        name = "board.html" if path == "/" else path.removeprefix("/static/")
        body = self._board.page(name)
        return None if body is None else (TYPES[Path(name).suffix] + "; charset=utf-8", body)

    def _begin(self, status: HTTPStatus, kind: str, size: int | None = None) -> None:
        """Status line and headers; without a size the connection ends the body."""
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        if size is not None:
            self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self._begin(status, kind, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _follow(self) -> None:
        self.close_connection = True
        self._begin(HTTPStatus.OK, "text/event-stream")
        if self.command == "HEAD":
            return
        state = self._board.follower.state()
        self.wfile.write(_event(state))
        while not self._board.follower.stopped:
            found = self._board.follower.news(state, HEARTBEAT_S)
            self.wfile.write(b": still here\n\n" if found is None else _event(found))
            state = found or state

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet: the page is the log."""


def _event(state: dict[str, int]) -> bytes:
    return f"data: {json.dumps(state)}\n\n".encode()


def _as_json(value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps(without_nan(value), allow_nan=False, separators=(",", ":")).encode()


def in_background(board: Board) -> threading.Thread:
    """Serves from a thread of its own, for scripts that look at the board themselves."""
    thread = threading.Thread(target=board.serve, name="board", daemon=True)
    thread.start()
    return thread
