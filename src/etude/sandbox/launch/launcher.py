"""One process a sandbox, for back ends that start a program instead of forking a zygote. It inherits a socket, and the code as a blob."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from etude.sandbox.cleanup.undo import Undo
from etude.sandbox.creation import Memory, Recall
from etude.sandbox.errors import InfraError, SandboxError, Unsupported
from etude.sandbox.inside.zygote import UNPRIVILEGED_UIDS
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire.live import Birth

_END_PATIENCE_S = 5.0  # a launcher ends a few ms after its sandbox
_SHOWN_BYTES = 2000  # of what a launcher says on stderr


@dataclass
class Launch:
    """What to start: the command line, the descriptors that it refers to by number, and as whom, where root must become another user
    that isn't one of the unprivileged ones."""

    argv: list[str]
    descriptors: list[int] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: int | None = None
    # The control socket is its stdin, and the launcher itself is the first process: where no descriptor travels to the inside or back.
    stands_for: bool = False
    inherits: bool = True  # else the inside fetches the control socket
    name: str = ""  # of the container, where it has one
    folder: Path | None = None  # its own, removed when it has ended
    attend: Callable[[subprocess.Popen[bytes]], None] = lambda process: None  # what it needs of us to come up


Prepare = Callable[[int, ExitStack], Launch]  # with the control socket's number, and what is closed once it has started


class Surroundings(Protocol):
    """How one back end wraps the interpreter. `drops_root`: the launcher must not be root, because it can't get rid of it itself.
    `egress`: it has a loopback of its own, on which a door can be."""

    backend: str
    isolation: Isolation
    end_signal: signal.Signals
    drops_root: bool
    egress: bool

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        """What a control group around all its processes must bear for the inside to have what the spec says."""
        ...

    def place(self, spec: SandboxSpec) -> dict[str, Any]: ...
    def leavings(self) -> tuple[Undo, ...]:
        """See `making.Cradle`."""
        ...

    def launch(self, spec: SandboxSpec, control: int, program: int, files: ExitStack) -> Launch: ...
    def close(self) -> None: ...


class OwnNamespaces:
    """What surroundings have in common whose launcher makes the namespaces and ends with them: nothing outlives a sandbox."""

    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = True
    egress = True

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leavings(self) -> tuple[Undo, ...]:
        return ()  # a sandbox ends as its socket closes, and its launcher with it

    def close(self) -> None:
        """There is nothing to undo."""


@runtime_checkable
class Remembers(Protocol):
    """Surroundings that can copy the memory of what they launched."""

    def keep(self, name: str) -> Path:
        """Write all of a container to a folder of its own; the container ends with it. Raises InfraError."""
        ...

    def recall(self, spec: SandboxSpec, kept: Path) -> Launch: ...
    def forget(self, kept: Path) -> None: ...


class Launched:
    """A started launcher; see `live.Birth`."""

    def __init__(self, process: subprocess.Popen[bytes], said: int, backend: str, launch: Launch) -> None:
        self._process, self._said, self._backend = process, said, backend
        self._words = ""
        self.name, self._folder = launch.name, launch.folder
        self.first = os.pidfd_open(process.pid) if launch.stands_for else -1

    def explain(self, error: SandboxError) -> SandboxError:
        words = f" ({self._words})" if self._words else ""
        return type(error)(f"back end {self._backend}: {error}{words}")

    def abandon(self) -> None:
        """It has become nobody's."""
        self._process.kill()
        self._process.wait()
        for fd in (self._said, self.first):
            if fd >= 0:
                os.close(fd)
        self._said = -1
        self._remove()

    async def end(self) -> None:
        if self._said < 0:
            return
        said, self._said = self._said, -1
        try:
            for _ in range(int(_END_PATIENCE_S * 1000)):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(0.001)
            else:
                self._process.kill()
                self._process.wait()
            self._words = os.pread(said, _SHOWN_BYTES, 0).decode(errors="replace").strip()
        finally:
            os.close(said)
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # it is in one that goes with the pool


class Recalling:
    """See `making.Recall`."""

    def __init__(self, launcher: Launcher, surroundings: Remembers) -> None:
        self._launcher, self._surroundings = launcher, surroundings

    async def keep(self, birth: Birth | None, processes: bool) -> Memory:
        assert isinstance(birth, Launched)
        return Memory(str(await asyncio.to_thread(self._surroundings.keep, birth.name)), processes)

    async def bear(self, spec: SandboxSpec, memory: Memory, control: socket.socket) -> Launched:
        return await self._launcher.start(lambda *_: self._surroundings.recall(spec, Path(memory.folder)), control)

    async def forget(self, memory: Memory) -> None:
        await asyncio.to_thread(self._surroundings.forget, Path(memory.folder))


class Launcher:
    """A cradle of launched sandboxes."""

    def __init__(self, surroundings: Surroundings, python: Interpreter) -> None:
        self._surroundings = surroundings
        self.backend: str = surroundings.backend
        self.isolation: Isolation = surroundings.isolation
        self.end_signal: signal.Signals = surroundings.end_signal
        self.egress: bool = surroundings.egress
        self.stores: tuple[str, ...] = ()  # no layers can be mounted here
        self.recall: Recall | None = Recalling(self, surroundings) if isinstance(surroundings, Remembers) else None
        self.unranged = "its sandboxes have one user; sandbox.backend='local' can give them more"
        try:
            self._program = bundle.descriptor(python)
        except OSError as error:
            raise Unsupported(f"back end {self.backend}: memfd_create: {error.strerror}") from None

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        return self._surroundings.burden(spec)

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {**self._surroundings.place(spec), "egress": spec.network.mode == "allowlist"}

    def leavings(self) -> tuple[Undo, ...]:
        return self._surroundings.leavings()

    async def bear(self, spec: SandboxSpec, control: socket.socket) -> Launched:
        def launch(held: int, files: ExitStack) -> Launch:
            return self._surroundings.launch(spec, held, self._program, files)

        return await self.start(launch, control)

    def parent(self, spec: SandboxSpec) -> int:
        return 0

    async def runner(self) -> str:
        return "python"

    async def close(self) -> None:
        if self._program >= 0:
            os.close(self._program)
            self._program = -1
            await asyncio.to_thread(self._surroundings.close)

    async def start(self, launch: Prepare, control: socket.socket) -> Launched:
        """In a thread: a fork of a large process takes its time, and an engine much more."""
        held = os.dup(control.fileno())  # who is cancelled closes theirs
        task = asyncio.ensure_future(asyncio.to_thread(self._start, launch, held))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if task.exception() is None:
                task.result().abandon()
            raise

    def _start(self, prepare: Prepare, control: int) -> Launched:
        with ExitStack() as files:
            files.callback(os.close, control)
            launch = prepare(control, files)
            said = os.memfd_create("stderr", os.MFD_CLOEXEC)
            try:
                handed = (
                    (control, self._program, *launch.descriptors) if launch.inherits and not launch.stands_for else ()
                )
                process = self._spawn(launch, handed, said, control if launch.stands_for else subprocess.DEVNULL)
            except BaseException:
                os.close(said)
                raise
            launched = Launched(process, said, self.backend, launch)
            try:
                launch.attend(process)
            except BaseException:
                launched.abandon()
                raise
            return launched

    def _spawn(self, launch: Launch, descriptors: tuple[int, ...], said: int, stdin: int) -> subprocess.Popen[bytes]:
        uids = UNPRIVILEGED_UIDS if self._surroundings.drops_root and os.geteuid() == 0 else (None,)
        if launch.user is not None:
            uids = (launch.user,) if launch.user != os.geteuid() else (None,)
        problem = "no uid"
        for uid in uids:
            try:
                return subprocess.Popen(
                    launch.argv,
                    env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", **launch.environment},
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    pass_fds=descriptors,
                    start_new_session=True,
                    cwd="/",
                    user=uid,
                    group=uid,
                    extra_groups=None if uid is None else [],
                )
            except FileNotFoundError:
                raise Unsupported(f"back end {self.backend}: {launch.argv[0]} is not installed") from None
            except PermissionError as error:
                problem = str(error)  # the uid is not mapped here: try the next
            except OSError as error:
                problem = str(error)
        raise InfraError(f"back end {self.backend}: {launch.argv[0]} could not be started: {problem}")


def in_memory(data: bytes, files: ExitStack) -> int:
    """A descriptor to read `data` from, closed with `files`."""
    fd = os.memfd_create("data", os.MFD_CLOEXEC)
    files.callback(os.close, fd)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
