"""The native runner by itself: process 1 of a bare pid namespace over this machine's own files, spoken to frame by frame."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from etude.sandbox.inside import frames
from etude.sandbox.native import build

PATIENCE_S = 30.0
OTHER_PROGRAM = "ETUDE_TEST_NATIVE_RUNNER"
UNSHARED = (
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount",
    "--net",
    "--mount-proc",
    "--kill-child",
)
SPEC: dict[str, Any] = {
    "env": {"COLOUR": "blue"},
    "memory_mb": 512,
    "data_mb": 0,
    "address_mb": 0,
    "pids": 256,
    "disk_mb": 128,
    "bound": False,
    "place": {},
}


class Talk:
    """One runner, one conversation. Streams are counted up as a client does."""

    def __init__(
        self, program: Path, spec: dict[str, Any], contents: bytes = b"", inside: tuple[str, ...] = UNSHARED
    ) -> None:
        self.socket, theirs = socket.socketpair()
        self.socket.settimeout(PATIENCE_S)
        self._splitter, self._heard, self._stream = frames.Splitter(), list[frames.Frame](), 0
        self.rights: list[int] = []
        spec_fd = os.memfd_create("spec")
        os.write(spec_fd, frames.pack(frames.SPEC, 0, {**SPEC, **spec}, contents))
        descriptors = (theirs.fileno(), spec_fd)
        command = [*inside, str(program), *map(str, descriptors)]
        self.process = subprocess.Popen(command, pass_fds=descriptors, stdin=subprocess.DEVNULL)
        theirs.close()
        os.close(spec_fd)

    def send(self, kind: int, stream: int, head: dict[str, Any], blob: bytes = b"") -> None:
        self.socket.sendall(frames.pack(kind, stream, head, blob))

    def hear(self) -> frames.Frame:
        """The next frame. Raises EOFError when the runner has ended."""
        while not self._heard:
            data, rights, _, _ = socket.recv_fds(self.socket, 1 << 18, 4)
            self.rights += rights
            if not data:
                raise EOFError
            self._heard += self._splitter.feed(data)
        return self._heard.pop(0)

    def open(self, kind: int, head: dict[str, Any], blob: bytes = b"") -> int:
        self._stream += 1
        self.send(kind, self._stream, head, blob)
        return self._stream

    def ask(self, kind: int, blob: bytes = b"", /, **head: Any) -> frames.Frame:
        """One request and its one answer."""
        stream = self.open(kind, head, blob)
        answer = self.hear()
        assert answer.stream == stream, (answer.kind, answer.head)
        return answer

    def command(self, *argv: str, **more: Any) -> dict[str, Any]:
        base = {"argv": list(argv), "cwd": None, "env": {}, "timeout_s": 10, "max_output_bytes": 65536, "warm": False}
        return {**base, **more}

    def run(self, *argv: str, stdin: bytes = b"", **more: Any) -> frames.Frame:
        return self.ask(frames.RUN, stdin, **self.command(*argv, **more))

    def exec(self, *argv: str, stdin: bytes = b"", **more: Any) -> int:
        base = {"open_stdin": False, "tty": None, "credit": 1 << 20, "user": None}
        return self.open(frames.EXEC, {**self.command(*argv), **base, **more}, stdin)

    def close(self) -> int:
        self.socket.close()
        for fd in self.rights:
            os.close(fd)
        return self.process.wait(PATIENCE_S)


class Start(Protocol):
    def __call__(
        self, *files: tuple[str, bytes], inside: tuple[str, ...] = UNSHARED, program: Path = ..., **spec: Any
    ) -> Talk: ...


@functools.cache
def _obstacle() -> str:
    """Why no runner can be tried here."""
    found = build.program()
    if isinstance(found, str):
        return found
    try:
        done = subprocess.run([*UNSHARED, "true"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except FileNotFoundError:
        return "no unshare(1)"
    return f"no namespaces here: {done.stderr.strip()}" if done.returncode else ""


@pytest.fixture(scope="session")
def program() -> Path:
    if reason := _obstacle():
        pytest.skip(reason)
    if other := os.environ.get(OTHER_PROGRAM):
        return Path(other)  # the same sources with a checking compiler: see test_sandbox_native_checked
    found = build.program()
    assert isinstance(found, Path)
    return found


@pytest.fixture
def start(program: Path, tmp_path: Path) -> Iterator[Start]:
    """Makes runners; the workdir is the test's own folder."""
    made: list[Talk] = []

    def begin(
        *files: tuple[str, bytes], inside: tuple[str, ...] = UNSHARED, program: Path = program, **spec: Any
    ) -> Talk:
        sizes = [[path, len(data)] for path, data in files]
        head = {"workdir": str(tmp_path), "files": sizes, **spec}
        made.append(Talk(program, head, b"".join(data for _, data in files), inside))
        return made[-1]

    yield begin
    for talk in made:
        talk.close()


@pytest.fixture
def talk(start: Start) -> Talk:
    """One that is ready."""
    begun = start(("hello.txt", b"hello\n"))
    assert begun.hear().kind == frames.READY
    return begun


@pytest.fixture
def unshared() -> tuple[str, ...]:
    """What begins a bare pid namespace."""
    return UNSHARED
