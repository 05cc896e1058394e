"""Namespaces made by ourselves: starts zygotes and asks them for sandboxes. One zygote serves one read-only root (interpreter, binds,
workdir). The default back end, the fastest and the one with the tightest file systems.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etude.sandbox import interpreter
from etude.sandbox.cleanup.undo import Undo
from etude.sandbox.creation import Recall
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.launch import uids
from etude.sandbox.launch.around import Around
from etude.sandbox.launch.launcher import Launcher
from etude.sandbox.launch.program import NativeProgram
from etude.sandbox.launch.uids import Claimed
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire.live import Birth

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


def _started(python: Interpreter) -> tuple[subprocess.Popen[bytes], socket.socket]:
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


async def _configured(process: subprocess.Popen[bytes], ours: socket.socket, config: dict[str, Any]) -> dict[str, str]:
    """What the zygote answers to its configuration; under "error" why it can't serve."""
    try:
        ours.send(json.dumps(config).encode())
        async with asyncio.timeout(_START_TIMEOUT_S):  # Python 3.11's wait_for may swallow a cancellation
            received = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
        return json.loads(received) if received else {"error": f"it died at start (exit {process.poll()})"}
    except (OSError, TimeoutError) as error:
        return {"error": f"no answer: {error or 'time-out'}"}


class Nursery:
    """One zygote process. Closing the socket ends it; sandboxes it made live on until their own sockets close."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process, self._control = process, control
        self.unranged = ""  # why no sandbox could have a range of users; "" where it could

    @classmethod
    async def start(
        cls, key: RootKey, python: Interpreter, stores: tuple[str, ...], taken_from: uids.Source | None
    ) -> Nursery:
        """`stores`: the folders of layers that its sandboxes may mount; `taken_from`: where ranges of users come from. Raises Unsupported
        with the failing step and the remedy."""
        process, ours = _started(python)
        nursery = cls(process, ours)
        config = {
            "python": python.path,
            "binds": [*python.binds, *key.binds],
            "workdir": key.workdir,
            "hide": hidden(python),
            "stores": stores,
            "ranged": key.ranged,
            "ranges": None if taken_from is None else taken_from.config(),
        }
        answer = await _configured(process, ours, config)
        if "error" in answer:
            await nursery.close()
            raise Unsupported(f"no sandbox can be made here: {answer['error']}. Remedy: {_REMEDY}")
        nursery.unranged = answer["unranged"]
        return nursery

    async def conceive(self, child: socket.socket, program: int = -1, claimed: Claimed | None = None) -> None:
        """Hand one end of a sandbox' socket over; the zygote answers through it. `program`: a native runner for it to become."""
        words, descriptors = b"c", [child.fileno()]
        if claimed is not None:
            words = b"c %d %d" % (claimed.uid, claimed.gid)
            descriptors.append(claimed.lock)
        if program >= 0:
            descriptors.append(program)
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


class Nurseries:
    """The cradle of namespace sandboxes: a zygote for each root, started once even if many ask at once, anew if it died."""

    backend = "local"
    isolation: Isolation = "namespace"
    end_signal: signal.Signals = signal.SIGKILL
    egress = True
    recall: Recall | None = None  # files alone can be kept

    def __init__(self, stores: tuple[str, ...] = ()) -> None:
        self.stores = stores
        self._native = NativeProgram()
        self.unranged = "no zygote has tried it yet"
        self._source = uids.source()
        self._ranges: uids.Ranges | None = None
        self._nurseries: dict[RootKey, asyncio.Task[Nursery]] = {}
        self._around: Launcher | None = None  # of sandboxes around folders of the host, once there is one

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leavings(self) -> tuple[Undo, ...]:
        return ()  # zygotes and sandboxes end as this process' sockets close

    def _launcher(self) -> Launcher:
        if self._around is None:
            python = interpreter.find()
            self._around = Launcher(Around(python), python)
        return self._around

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        if spec.folder:
            return self._launcher().place(spec)
        binds = [inside for _, inside in spec.read_only_binds]
        return {"kind": "namespaces", "binds": binds, "egress": spec.network.mode == "allowlist"}

    async def bear(self, spec: SandboxSpec, control: socket.socket) -> Birth | None:
        if spec.folder:
            return await self._launcher().bear(spec, control)
        ranged = spec.uid_mode == "range"
        nursery = await self._nursery(RootKey(spec.workdir, spec.read_only_binds, ranged))
        program = -1 if spec.warm_python else await self._native.descriptor()
        if not ranged:
            await nursery.conceive(control, program)
            return None
        claimed = self._claim()
        try:
            await nursery.conceive(control, program, claimed)
        except BaseException:
            claimed.release()
            raise
        return claimed

    def _claim(self) -> Claimed:
        if self._ranges is None:
            if self._source is None:
                raise Unsupported(f"uid_mode='range': {self.unranged}")
            self._ranges = uids.Ranges(self._source, uids.folder())
        return self._ranges.claim()

    def parent(self, spec: SandboxSpec) -> int:
        task = self._nurseries.get(RootKey(spec.workdir, spec.read_only_binds, ranged=False))
        if spec.folder:
            return 0
        there = task is not None and task.done() and task.exception() is None and task.result().alive
        return task.result().pid if task is not None and there and spec.uid_mode == "single" else 0

    async def runner(self) -> str:
        """What serves where no warm interpreter is asked for: found by building it."""
        return "native" if await self._native.descriptor() >= 0 else "python"

    async def close(self) -> None:
        self._native.close()
        if self._around is not None:
            await self._around.close()
        for task in self._nurseries.values():
            try:
                await (await task).close()
            except Unsupported:
                continue  # it never started
        self._nurseries.clear()

    async def _nursery(self, key: RootKey) -> Nursery:
        task = self._nurseries.get(key)
        if task is None or (task.done() and (task.exception() is not None or not task.result().alive)):
            start = Nursery.start(key, interpreter.find(), self.stores, self._source)
            task = self._nurseries[key] = asyncio.ensure_future(start)
        nursery = await asyncio.shield(task)
        if not key.ranged:
            self.unranged = nursery.unranged
        return nursery


def hidden(python: Interpreter) -> list[str]:
    """What must be absent even where a bound system directory contains it: the home, this package's source, pip settings."""
    paths = [os.path.expanduser("~"), _SOURCE, os.getcwd()]
    paths = [path for path in map(os.path.realpath, paths) if path != "/" and not python.prefix.startswith(path)]
    return paths + [os.path.join(prefix, "pip.conf") for prefix in {python.prefix, "/usr", "/usr/local"}]
