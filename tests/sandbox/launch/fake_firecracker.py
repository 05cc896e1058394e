"""Replaces the program firecracker: its API on a socket, and a "guest" that answers on its vsock as a runner does. Run as a program:
`fake_firecracker.py --api-sock PATH --id NAME`. What it was asked is written, a line each, to the file $ASKED; the request that holds $FAULT
in its path is refused."""

from __future__ import annotations

import http.server
import json
import os
import socket
import socketserver
import sys
import threading
from pathlib import Path
from typing import Any

from etude.sandbox.inside import frames

PORT = 5252


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    asked: Path
    fault: str
    state = "Not started"
    vsock = ""


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._answer(200, {"state": self.server.state, "id": "x"})

    def _serve(self) -> None:
        body: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.asked.open("a") as file:
            file.write(json.dumps([self.command, self.path, body]) + "\n")
        if self.server.fault and self.server.fault in self.path:
            self._answer(400, {"fault_message": "this one is refused"})
            return
        if self.path == "/vsock":
            self.server.vsock = body["uds_path"]
        if self.path == "/vm":
            self.server.state = body["state"].replace("Resumed", "Running")
        if body.get("action_type") == "InstanceStart":
            self.server.state = "Running"
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.server.vsock)
            listener.listen()
            threading.Thread(target=guest, args=(listener,), daemon=True).start()
        self._answer(204, None)

    def _answer(self, status: int, body: dict[str, Any] | None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        return


def guest(listener: socket.socket) -> None:
    """The first who asks comes before anything inside listens, and is turned away."""
    listener.accept()[0].close()
    line = listener.accept()[0]
    assert line.recv(64) == b"CONNECT %d\n" % PORT
    line.sendall(b"OK 1073741824\n")
    splitter = frames.Splitter()
    contents = b""
    while data := line.recv(1 << 16):
        for frame in splitter.feed(data):
            if frame.kind == frames.SPEC:
                contents = frame.blob
                line.sendall(frames.pack(frames.READY, 0, {}))
            elif frame.kind == frames.RUN:
                out = contents + (b"\n" if frame.head["warm"] else b"")
                ended = {"rc": 0, "signal": None, "out": len(out), "truncated": False, "timed_out": False, "oom": False}
                ended |= {"duration_s": 0.0, "cpu_s": 0.0, "max_rss_kib": 0}
                line.sendall(frames.pack(frames.OK, frame.stream, ended, out))
    os._exit(0)


if __name__ == "__main__":
    if "--version" in sys.argv:
        print("Firecracker v1.7.0")
    else:
        made = Server(sys.argv[sys.argv.index("--api-sock") + 1], Handler)
        made.asked, made.fault = Path(os.environ["ASKED"]), os.environ.get("FAULT", "")
        made.serve_forever()
