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

from etude.ledger.undo import Undo
from etude.sandbox import interpreter
from etude.sandbox.errors import InfraError, Unsupported
from etude.sandbox.interpreter import Interpreter
from etude.sandbox.spec import Isolation, SandboxSpec

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


class Nursery:
    """One zygote process. Closing the socket ends it; sandboxes it made live on until their own sockets close."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process, self._control = process, control

    @classmethod
    async def start(cls, key: RootKey, python: Interpreter, store: str | None) -> Nursery:
        """`store`: the folder of layers that its sandboxes may mount. Raises Unsupported with the failing step and the remedy."""
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
        nursery = cls(process, ours)
        ours.setblocking(False)
        config = {
            "python": python.path,
            "binds": [*python.binds, *key.binds],
            "workdir": key.workdir,
            "hide": hidden(python),
            "store": store,
        }
        loop = asyncio.get_running_loop()
        try:
            ours.send(json.dumps(config).encode())
            answer = await asyncio.wait_for(loop.sock_recv(ours, 1 << 16), _START_TIMEOUT_S)
            problem = json.loads(answer) if answer else {"error": f"it died at start (exit {process.poll()})"}
        except (OSError, TimeoutError) as error:
            problem = {"error": f"no answer: {error or 'time-out'}"}
        if problem:
            await nursery.close()
            raise Unsupported(f"no sandbox can be made here: {problem['error']}. Remedy: {_REMEDY}")
        return nursery

    async def conceive(self, child: socket.socket, program: int = -1) -> None:
        """Hand one end of a sandbox' socket over; the zygote answers through it. `program`: a native runner for it to become."""
        while True:
            try:
                socket.send_fds(self._control, [b"c"], [child.fileno()] + [program] * (program >= 0))
                return
            except BlockingIOError:  # its queue is full: it forks as fast as it can
                await asyncio.sleep(0.001)
            except OSError as error:
                raise InfraError(
                    f"the zygote is gone ({error.strerror}); a new one is started by the next create"
                ) from None

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

    def __init__(self, store: str | None = None) -> None:
        self.store = store
        self.runner = "python"
        self._nurseries: dict[RootKey, asyncio.Task[Nursery]] = {}

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        return spec

    def leavings(self) -> tuple[Undo, ...]:
        return ()  # zygotes and sandboxes end as this process' sockets close

    def place(self, spec: SandboxSpec) -> dict[str, Any]:
        binds = [inside for _, inside in spec.read_only_binds]
        return {"kind": "namespaces", "binds": binds, "egress": spec.network.mode == "allowlist"}

    async def bear(self, spec: SandboxSpec, control: socket.socket) -> None:
        nursery = await self._nursery(RootKey(spec.workdir, spec.read_only_binds))
        await nursery.conceive(control)

    async def close(self) -> None:
        for task in self._nurseries.values():
            try:
                await (await task).close()
            except Unsupported:
                continue  # it never started
        self._nurseries.clear()

    async def _nursery(self, key: RootKey) -> Nursery:
        task = self._nurseries.get(key)
        if task is None or (task.done() and (task.exception() is not None or not task.result().alive)):
            task = self._nurseries[key] = asyncio.ensure_future(Nursery.start(key, interpreter.find(), self.store))
        return await asyncio.shield(task)


def hidden(python: Interpreter) -> list[str]:
    """What must be absent even where a bound system directory contains it: the home, this package's source, pip settings."""
    paths = [os.path.expanduser("~"), _SOURCE, os.getcwd()]
    paths = [path for path in map(os.path.realpath, paths) if path != "/" and not python.prefix.startswith(path)]
    return paths + [os.path.join(prefix, "pip.conf") for prefix in {python.prefix, "/usr", "/usr/local"}]
