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
from etude.sandbox.creation import MemoryBackend, MemoryCopy
from etude.sandbox.errors import InfraError, SandboxError, Unsupported
from etude.sandbox.inside.zygote import UNPRIVILEGED_UIDS
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle
from etude.sandbox.launch.native_program import NativeProgram
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire.live import BackendHandle

_END_PATIENCE_S = 5.0  # a launcher ends a few ms after its sandbox
_SHOWN_BYTES = 2000  # of what a launcher says on stderr


@dataclass
class LaunchCommand:
    """What to start: the command line, the descriptors that it refers to by number, and as whom, where root must become another user
    that isn't one of the unprivileged ones."""

    argv: list[str]
    descriptors: list[int] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: int | None = None
    # The control socket is its stdin, and the launcher itself is the first process: where no descriptor travels to the inside or back.
    is_first_process: bool = False
    inherits_descriptors: bool = True  # else the inside fetches the control socket
    name: str = ""  # of the container, where it has one
    folder: Path | None = None  # its own, removed when it has ended
    after_start: Callable[[subprocess.Popen[bytes]], None] = lambda process: None  # what it needs of us to come up


@dataclass(frozen=True)
class Programs:
    """Descriptors of what the first process inside runs: the code that closes the sandbox, and the C runner that it becomes then.
    `runner` is -1 where the Python runner serves."""

    code: int
    runner: int

    def open(self) -> tuple[int, ...]:
        return (self.code, self.runner) if self.runner >= 0 else (self.code,)


PrepareLaunch = Callable[
    [int, ExitStack], LaunchCommand
]  # with the control socket's number, and what is closed once it has started


class IsolationRuntime(Protocol):
    """How one back end wraps the interpreter. `drops_root`: the launcher must not be root, because it can't get rid of it itself.
    `egress`: it has a loopback of its own, on which a door can be. `becomes_native`: its first process can become the C runner."""

    backend: str
    isolation: Isolation
    end_signal: signal.Signals
    drops_root: bool
    egress: bool
    becomes_native: bool

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """What a control group around all its processes must bear for the inside to have what the spec says."""
        ...

    def place(self, spec: SandboxSpec) -> dict[str, Any]: ...
    def leftovers(self) -> tuple[Undo, ...]:
        """See `SandboxBackend`."""
        ...

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand: ...
    def close(self) -> None: ...


class NamespaceRuntime:
    """What runtime have in common whose launcher makes the namespaces and ends with them: nothing outlives a sandbox."""

    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    drops_root = True
    egress = True
    becomes_native = True

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leftovers(self) -> tuple[Undo, ...]:
        return ()  # a sandbox ends as its socket closes, and its launcher with it

    def close(self) -> None:
        """There is nothing to undo."""


@runtime_checkable
class MemoryRuntime(Protocol):
    """Surroundings that can copy the memory of what they launched."""

    def save_memory(self, name: str) -> Path:
        """Write all of a container to a folder of its own; the container ends with it. Raises InfraError."""
        ...

    def restore_memory(self, spec: SandboxSpec, saved: Path) -> LaunchCommand: ...
    def delete_memory(self, saved: Path) -> None: ...


class LaunchedProcess:
    """A started launcher; see `live.BackendHandle`."""

    def __init__(self, process: subprocess.Popen[bytes], stderr_fd: int, backend: str, launch: LaunchCommand) -> None:
        self._process, self._stderr_fd, self._backend = process, stderr_fd, backend
        self._stderr = ""
        self.name, self._folder = launch.name, launch.folder
        self.first = os.pidfd_open(process.pid) if launch.is_first_process else -1

    def explain(self, error: SandboxError) -> SandboxError:
        words = f" ({self._stderr})" if self._stderr else ""
        return type(error)(f"back end {self._backend}: {error}{words}")

    def abandon(self) -> None:
        """Kill it: its caller has gone."""
        self._process.kill()
        self._process.wait()
        for fd in (self._stderr_fd, self.first):
            if fd >= 0:
                os.close(fd)
        self._stderr_fd = -1
        self._remove()

    async def end(self) -> None:
        if self._stderr_fd < 0:
            return
        stderr_fd, self._stderr_fd = self._stderr_fd, -1
        try:
            for _ in range(int(_END_PATIENCE_S * 1000)):
                if self._process.poll() is not None:
                    break
                await asyncio.sleep(0.001)
            else:
                self._process.kill()
                self._process.wait()
            self._stderr = os.pread(stderr_fd, _SHOWN_BYTES, 0).decode(errors="replace").strip()
        finally:
            os.close(stderr_fd)
            self._remove()

    def _remove(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)  # it is in one that goes with the pool


class LauncherMemory:
    """See `making.Recall`."""

    def __init__(self, launcher: Launcher, runtime: MemoryRuntime) -> None:
        self._launcher, self._runtime = launcher, runtime

    async def keep(self, backend_handle: BackendHandle | None, processes: bool) -> MemoryCopy:
        assert isinstance(backend_handle, LaunchedProcess)
        return MemoryCopy(str(await asyncio.to_thread(self._runtime.save_memory, backend_handle.name)), processes)

    async def spawn(self, spec: SandboxSpec, memory: MemoryCopy, control: socket.socket) -> LaunchedProcess:
        return await self._launcher.start(lambda *_: self._runtime.restore_memory(spec, Path(memory.folder)), control)

    async def forget(self, memory: MemoryCopy) -> None:
        await asyncio.to_thread(self._runtime.delete_memory, Path(memory.folder))


class Launcher:
    """The back end of sandboxes that each have one launched process."""

    def __init__(self, runtime: IsolationRuntime, python: Interpreter) -> None:
        self._runtime = runtime
        self.backend: str = runtime.backend
        self.isolation: Isolation = runtime.isolation
        self.end_signal: signal.Signals = runtime.end_signal
        self.egress: bool = runtime.egress
        self.stores: tuple[str, ...] = ()  # no layers can be mounted here
        self.memory_backend: MemoryBackend | None = (
            LauncherMemory(self, runtime) if isinstance(runtime, MemoryRuntime) else None
        )
        self.uid_range_problem = "its sandboxes have one user; sandbox.backend='local' can give them more"
        self._native = NativeProgram()
        try:
            self._code = bundle.descriptor(python)
        except OSError as error:
            raise Unsupported(f"back end {self.backend}: memfd_create: {error.strerror}") from None

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return self._runtime.group_spec(spec)

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {**self._runtime.place(spec), "egress": spec.network.mode == "allowlist"}

    def leftovers(self) -> tuple[Undo, ...]:
        return self._runtime.leftovers()

    async def spawn(self, spec: SandboxSpec, control: socket.socket) -> LaunchedProcess:
        programs = Programs(self._code, await self._runner())

        def launch(held: int, files: ExitStack) -> LaunchCommand:
            return self._runtime.launch(spec, held, programs, files)

        return await self.start(launch, control, programs)

    async def _runner(self) -> int:
        return await self._native.descriptor() if self._runtime.becomes_native else -1

    def parent(self, spec: SandboxSpec) -> int:
        return 0

    async def runner(self) -> str:
        return "native" if await self._runner() >= 0 else "python"

    async def close(self) -> None:
        self._native.close()
        if self._code >= 0:
            os.close(self._code)
            self._code = -1
            await asyncio.to_thread(self._runtime.close)

    async def start(
        self, launch: PrepareLaunch, control: socket.socket, programs: Programs | None = None
    ) -> LaunchedProcess:
        """In a thread: a fork of a large process takes its time, and an engine much more. `programs` are handed in by inheritance."""
        held = os.dup(control.fileno())  # who is cancelled closes theirs
        task = asyncio.ensure_future(asyncio.to_thread(self._start, launch, held, programs))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait([task])
            if task.exception() is None:
                task.result().abandon()
            raise

    def _start(self, prepare: PrepareLaunch, control: int, programs: Programs | None) -> LaunchedProcess:
        with ExitStack() as files:
            files.callback(os.close, control)
            launch = prepare(control, files)
            stderr_fd = os.memfd_create("stderr", os.MFD_CLOEXEC)
            try:
                handed = (
                    (control, *programs.open(), *launch.descriptors)
                    if programs is not None and launch.inherits_descriptors and not launch.is_first_process
                    else ()
                )
                process = self._spawn(
                    launch, handed, stderr_fd, control if launch.is_first_process else subprocess.DEVNULL
                )
            except BaseException:
                os.close(stderr_fd)
                raise
            launched = LaunchedProcess(process, stderr_fd, self.backend, launch)
            try:
                launch.after_start(process)
            except BaseException:
                launched.abandon()
                raise
            return launched

    def _spawn(
        self, launch: LaunchCommand, descriptors: tuple[int, ...], stderr_fd: int, stdin: int
    ) -> subprocess.Popen[bytes]:
        uids = UNPRIVILEGED_UIDS if self._runtime.drops_root and os.geteuid() == 0 else (None,)
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
                    stderr=stderr_fd,
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
