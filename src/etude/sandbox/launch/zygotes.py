"""The default back end: Linux namespaces. It starts zygotes and forks sandboxes from them. One zygote serves one read-only root (interpreter, binds,
workdir). It is the fastest back end, with the strictest file systems.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.sandbox import folder, interpreter
from etude.sandbox.cleanup.undo import Undo
from etude.sandbox.creation import MemoryBackend
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import bundle, uids
from etude.sandbox.launch.launcher import LaunchCommand, Launcher, NamespaceRuntime, Programs
from etude.sandbox.launch.native_program import NativeProgram
from etude.sandbox.launch.uids import UidRange
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire.live import BackendHandle

_START_TIMEOUT_S = 30.0  # 60 ms on a quiet core; a loaded machine may need a hundred times that
_SOURCE = str(Path(__file__).resolve().parents[3])
# The first datagram is the program: on the command line it would show the inside where this package lies.
_BOOT = "import sys; sys.path.insert(0, {source!r}); from etude.sandbox.inside import zygote; del sys.path[0]; zygote.main({fd})"
_ARGUMENT = "exec(__import__('os').read({fd}, 4096))"
_REMEDY = (
    "allow unprivileged user namespaces (sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, "
    "user.max_user_namespaces>0), or run on a virtual machine"
)


@dataclass(frozen=True)
class RootKey:
    """What distinguishes one read-only root from another."""

    workdir: str
    binds: tuple[tuple[str, str], ...]
    ranged: bool = False  # its zygote is mapped to all ranges of users


def _start_process(python: Interpreter) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The zygote's process, and our end of the socket that it reads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        ours.send(_BOOT.format(source=_SOURCE, fd=theirs.fileno()).encode())
        process = subprocess.Popen(
            # As -I, but with the environment below (which is all there is) instead of none.
            [python.path, "-P", "-s", "-S", "-B", "-c", _ARGUMENT.format(fd=theirs.fileno())],
            env={"PYTHONHASHSEED": "0", "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # the runners inherit it, and the inside has no business with our terminal
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # a Ctrl-C at the terminal is the client's to handle
            cwd="/",
        )
    ours.setblocking(False)
    return process, ours


async def _configure(process: subprocess.Popen[bytes], ours: socket.socket, config: dict[str, Any]) -> dict[str, str]:
    """What the zygote answers to its configuration; under "error" why it can't serve."""
    try:
        ours.send(json.dumps(config).encode())
        async with asyncio.timeout(_START_TIMEOUT_S):  # Python 3.11's wait_for may swallow a cancellation
            received = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
        return json.loads(received) if received else {"error": f"it died at start (exit {process.poll()})"}
    except (OSError, TimeoutError) as error:
        return {"error": f"no answer: {error or 'time-out'}"}


class Zygote:
    """One zygote process. Closing the socket ends it; sandboxes it made live on until their own sockets close."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process, self._control = process, control
        self.uid_range_problem = ""  # why no sandbox could have a range of users; "" where it could

    @classmethod
    async def start(
        cls, key: RootKey, python: Interpreter, stores: tuple[str, ...], source: uids.UidSource | None
    ) -> Zygote:
        """`stores`: the folders of layers that its sandboxes may mount; `taken_from`: where ranges of users come from. Raises Unsupported
        with the failing step and the remedy."""
        process, ours = _start_process(python)
        zygote = cls(process, ours)
        config = {
            "python": python.path,
            "binds": [*python.binds, *key.binds],
            "workdir": key.workdir,
            "hide": hidden(python),
            "stores": stores,
            "ranged": key.ranged,
            "ranges": None if source is None else source.config(),
        }
        answer = await _configure(process, ours, config)
        if "error" in answer:
            await zygote.close()
            raise Unsupported(f"no sandbox can be made here: {answer['error']}. Remedy: {_REMEDY}")
        zygote.uid_range_problem = answer["unranged"]
        return zygote

    async def fork_sandbox(
        self, child: socket.socket, programs: tuple[int, ...], uid_range: UidRange | None = None
    ) -> None:
        """Hand one end of a sandbox' socket over; the zygote answers through it. `programs`: the C runner for it to become, and the code of
        a warm interpreter if it has one."""
        words, descriptors = b"c", [child.fileno()]
        if uid_range is not None:
            words = b"c %d %d" % (uid_range.uid, uid_range.gid)
            descriptors.append(uid_range.lock)
        descriptors += programs
        while True:
            try:
                socket.send_fds(self._control, [words], descriptors)
                return
            except BlockingIOError:  # its queue is full: it forks as fast as it can
                await asyncio.sleep(0.001)
            except OSError as error:
                raise InfraError(
                    f"the zygote is gone ({error.strerror}); a new one is started by the next create"
                ) from None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def close(self) -> None:
        self._control.close()
        for _ in range(1000):
            if self._process.poll() is not None:
                return
            await asyncio.sleep(0.001)
        self._process.kill()
        self._process.wait()


class ZygotePool:
    """The back end of namespace sandboxes: one zygote for each root, started once for concurrent callers and restarted after its death."""

    backend = "local"
    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    egress = True
    memory_backend: MemoryBackend | None = None  # files alone can be kept

    def __init__(self, stores: tuple[str, ...] = ()) -> None:
        self.stores = stores
        self._native = NativeProgram()
        self._code = -1
        self.uid_range_problem = "no zygote has tried it yet"
        self._source = uids.source()
        self._ranges: uids.UidRangeAllocator | None = None
        self._zygotes: dict[RootKey, asyncio.Task[Zygote]] = {}
        self._folder_launcher: Launcher | None = None  # of sandboxes around folders of the host, once there is one

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leftovers(self) -> tuple[Undo, ...]:
        return ()  # zygotes and sandboxes end as this process' sockets close

    def _launcher(self) -> Launcher:
        if self._folder_launcher is None:
            python = interpreter.find()
            self._folder_launcher = Launcher(FolderRuntime(python), python)
        return self._folder_launcher

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        if spec.folder:
            return self._launcher().place(spec)
        binds = [inside for _, inside in spec.read_only_binds]
        return {"kind": "namespaces", "binds": binds, "egress": spec.network.mode == "allowlist"}

    async def spawn(self, spec: SandboxSpec, control: socket.socket) -> BackendHandle | None:
        if spec.folder:
            return await self._launcher().spawn(spec, control)
        ranged = spec.uid_mode == "range"
        zygote = await self._zygote(RootKey(spec.workdir, spec.read_only_binds, ranged))
        programs = (await self._native.descriptor(), *([await self._warm_code()] if spec.warm_python else []))
        if not ranged:
            await zygote.fork_sandbox(control, programs)
            return None
        uid_range = self._claim()
        try:
            await zygote.fork_sandbox(control, programs, uid_range)
        except BaseException:
            uid_range.release()
            raise
        return uid_range

    async def _warm_code(self) -> int:
        """The program of warm interpreters, as an open file."""
        if self._code < 0:
            opened = await asyncio.to_thread(bundle.descriptor, interpreter.find())
            if self._code >= 0:
                os.close(opened)  # another create was faster
            else:
                self._code = opened
        return self._code

    def _claim(self) -> UidRange:
        if self._ranges is None:
            if self._source is None:
                raise Unsupported(f"uid_mode='range': {self.uid_range_problem}")
            self._ranges = uids.UidRangeAllocator(self._source, uids.folder())
        return self._ranges.claim()

    def parent(self, spec: SandboxSpec) -> int:
        task = self._zygotes.get(RootKey(spec.workdir, spec.read_only_binds, ranged=False))
        if spec.folder:
            return 0
        there = task is not None and task.done() and task.exception() is None and task.result().alive
        return task.result().pid if task is not None and there and spec.uid_mode == "single" else 0

    async def runner(self) -> str:
        """What serves where no warm interpreter is asked for: found by building it."""
        await self._native.descriptor()
        return "native"

    async def close(self) -> None:
        self._native.close()
        if self._code >= 0:
            os.close(self._code)
            self._code = -1
        if self._folder_launcher is not None:
            await self._folder_launcher.close()
        for task in self._zygotes.values():
            try:
                await (await task).close()
            except Unsupported:
                continue  # it never started
        self._zygotes.clear()

    async def _zygote(self, key: RootKey) -> Zygote:
        task = self._zygotes.get(key)
        if task is None or (task.done() and (task.exception() is not None or not task.result().alive)):
            start = Zygote.start(key, interpreter.find(), self.stores, self._source)
            task = self._zygotes[key] = asyncio.ensure_future(start)
        zygote = await asyncio.shield(task)
        if not key.ranged:
            self.uid_range_problem = zygote.uid_range_problem
        return zygote


def hidden(python: Interpreter) -> list[str]:
    """What must be absent even where a bound system directory contains it: the home, this package's source, pip settings."""
    paths = [os.path.expanduser("~"), _SOURCE, os.getcwd()]
    paths = [path for path in map(os.path.realpath, paths) if path != "/" and not python.prefix.startswith(path)]
    return paths + [os.path.join(prefix, "pip.conf") for prefix in {python.prefix, "/usr", "/usr/local"}]


class FolderRuntime(NamespaceRuntime):
    """See `launcher.IsolationRuntime`. Only for specs with a folder."""

    backend = "local"

    def __init__(self, python: Interpreter) -> None:
        self._python = python

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        return {"kind": "around", "network": spec.network.mode, "steps": folder.mount_steps(spec)}

    def launch(self, spec: SandboxSpec, control: int, programs: Programs, files: ExitStack) -> LaunchCommand:
        start = bundle.ISOLATING.format(
            code=programs.code, control=control, runner=programs.runner, network=spec.network.mode
        )
        argv = [self._python.path, "-P", "-s", "-S", "-B", "-c", start]
        return LaunchCommand(argv, user=folder.launcher_uid(spec))
