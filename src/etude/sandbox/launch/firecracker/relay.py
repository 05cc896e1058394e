"""Bytes between the control socket and a microVM's vsock, in two threads: what is in the machine can't hold a descriptor of the host."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

from etude.sandbox.errors import InfraError

_LOOK_S = 0.01
_READ_BYTES = 1 << 16
_MOST_WORDS = 64


def dial(path: Path, port: int, process: subprocess.Popen[bytes], patience_s: float) -> socket.socket | None:
    """Connect to a port inside, once something listens there; None if the machine has ended before. Raises InfraError."""
    end_s = time.monotonic() + patience_s
    while process.poll() is None:
        if time.monotonic() > end_s:
            raise InfraError(
                f"nothing inside listened on vsock port {port} within {patience_s:g} s; see docs/sandbox.md, microVMs"
            )
        if (line := _asked(path, port, patience_s)) is not None:
            return line
        time.sleep(_LOOK_S)
    return None


def _asked(path: Path, port: int, patience_s: float) -> socket.socket | None:
    """Ask once. None: neither the machine's socket nor the port behind it need be there yet."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.settimeout(patience_s)
        line.connect(str(path))
        line.sendall(b"CONNECT %d\n" % port)
        if _answer(line).startswith(b"OK "):
            line.settimeout(None)
            return line
    except OSError:
        line.close()
        return None
    line.close()
    return None


def _answer(line: socket.socket) -> bytes:
    """Its first line, and not a byte more."""
    words = b""
    while not words.endswith(b"\n") and len(words) < _MOST_WORDS and (byte := line.recv(1)):
        words += byte
    return words


def between(control: int, line: socket.socket) -> None:
    """Until either ends; then both do. `control` stays the caller's."""
    ours = socket.socket(fileno=os.dup(control))
    for source, sink in ((ours, line), (line, ours)):
        threading.Thread(target=_pass, args=(source, sink), name="etude vsock", daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_READ_BYTES):
            sink.sendall(data)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)  # the other thread hears it; each closes what it reads
    source.close()
