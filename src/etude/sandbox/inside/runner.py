"""PID 1 of a sandbox: one loop over the control socket and the commands' pipes.

Promises: EOF on the control socket ends it, and with it every process inside (pid namespace); whatever the client may not send is reported
and ends it.
"""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - `signal` without enum conversions: each fork would copy their pages
import os

from etude.sandbox.inside import download, fault, files, frames, requests
from etude.sandbox.inside.commands import Commands
from etude.sandbox.inside.connecting import Connecting
from etude.sandbox.inside.freeze import Freezer
from etude.sandbox.inside.leader import Leaders
from etude.sandbox.inside.loop import READ, Loop
from etude.sandbox.inside.upload import Upload

TYPE_CHECKING = False  # as in `typing`, without importing it: every import makes each fork slower
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any

    from etude.sandbox.inside.ground import SandboxPaths

    Role = Callable[[], Any]

_RECEIVE_BYTES = 1 << 18


def _ignore(number: int, frame: Any) -> None:
    """A handler must exist for the wake-up pipe to be written."""


class Runner:
    def __init__(self, control: socket, store: files.FileOperations, spec: dict[str, Any], place: SandboxPaths) -> None:
        self._control, self._files = control, store
        self._splitter = frames.Splitter()
        self._loop = Loop()
        leaders = Leaders(control, place)
        self._commands = Commands(control.sendall, self._loop, leaders, store, spec, place)
        self._connecting = Connecting(control, self._loop)
        self._freezer = Freezer()
        self._uploads: dict[int, Upload] = {}
        self._loop.watch(control.fileno(), READ, self._listen)
        # A kernel that goes on from a copy of its memory wakes no process for a socket that was registered before.
        self._renews: bool = spec["place"].get("renews", False)
        self._wake, self._wake_writer = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._wake_writer, False)
        _signal.signal(_signal.SIGCHLD, _ignore)
        _signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        self._loop.watch(self._wake, READ, self._child_ended)

    def serve(self) -> Role | None:
        """Returns only in a forked child that is to become a warm run: its role, for a clean stack."""
        while True:
            try:
                role = self._loop.turn(self._patience_s())
                if role is not None:
                    return role
                if self._renews:
                    self._loop.renew(self._control.fileno())
                self._commands.check()
                self._connecting.check()
            except Exception as error:  # noqa: BLE001 - whatever it is, the client must hear of it before PID 1 ends
                self._control.sendall(frames.pack(frames.ERROR, 0, fault.explain(error)))
                os._exit(70)

    def _patience_s(self) -> float | None:
        waits = [
            wait_s for wait_s in (self._commands.patience_s(), self._connecting.patience_s()) if wait_s is not None
        ]
        return min(waits, default=None)

    def _child_ended(self) -> None:
        os.read(self._wake, 4096)
        self._commands.reap()

    def _listen(self) -> Role | None:
        data = self._control.recv(_RECEIVE_BYTES)
        if not data:
            os._exit(0)
        for frame in self._splitter.feed(data):
            if (role := self._serve(frame)) is not None:
                return role
        return None

    def _serve(self, frame: frames.Frame) -> Role | None:
        kind, stream = frame.kind, frame.stream
        if kind in _OF_A_COMMAND:
            self._steer(frame)
            return None
        if kind == frames.TREE:
            self._unpack(frame)
            return None
        if stream == 0 or stream in self._commands or stream in self._connecting or stream in self._uploads:
            raise frames.FrameError(f"a request on stream {stream}, which is in use")
        if kind in (frames.RUN, frames.EXEC):
            return self._commands.start(frame)
        if kind == frames.CONNECT:
            self._connecting.open(stream, frame.head["port"])
        elif kind == frames.PUT:
            self._uploads[stream] = Upload(self._files, stream, frame.head["path"])
        else:
            self._answer(frame)
        return None

    def _answer(self, frame: frames.Frame) -> None:
        """What is answered at once."""
        try:
            if frame.kind == frames.GET:
                for part in download.tree(self._files, frame.stream, frame.head["path"], frame.head["max_bytes"]):
                    self._control.sendall(part)
                return
            if frame.kind == frames.FREEZE:
                self._freezer.set(bool(frame.head["frozen"]))
                answer = frames.pack(frames.OK, frame.stream, {})
            else:
                answer = requests.answer(self._files, frame)
        except (OSError, files.FileRequestError, frames.FrameTooLarge) as error:
            answer = requests.refusal(frame, error)
        self._control.sendall(answer)

    def _unpack(self, frame: frames.Frame) -> None:
        upload = self._uploads.get(frame.stream)
        if upload is None:
            raise frames.FrameError(f"TREE on stream {frame.stream}, on which no PUT is open")
        answer = upload.take(frame)
        if answer is not None:
            del self._uploads[frame.stream]
            self._control.sendall(answer)

    def _steer(self, frame: frames.Frame) -> None:
        """What concerns a running command; one that has ended hears nothing any more."""
        stream, head = frame.stream, frame.head
        if frame.kind == frames.CANCEL:
            self._commands.kill(stream)
        elif frame.kind == frames.SIGNAL:
            self._commands.signal(stream, head["number"])
        elif (one := self._commands.streamed(stream)) is None:
            return
        elif frame.kind == frames.STDIN:
            one.feed(frame.blob, head["eof"])
        elif frame.kind == frames.CREDIT:
            one.credit(head["bytes"])
        else:
            one.resize(head["rows"], head["columns"])


_OF_A_COMMAND = frozenset((frames.CANCEL, frames.SIGNAL, frames.STDIN, frames.CREDIT, frames.RESIZE))
