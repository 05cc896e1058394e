"""The pool of this machine's own sandboxes, whichever `Cradle` bears them: namespaces, bubblewrap, podman, or a plain process.

Promises: a sandbox is handed out whole or not at all; everything that goes wrong is a typed error; closing the pool, or the death of
this process, ends every sandbox it made.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
import signal
import socket
from typing import Any, Protocol

from etude.sandbox import door, interpreter
from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.inside import frames
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.protocol import Sandbox
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Capabilities, Isolation, PoolStats, SandboxSpec, SnapshotRef
from etude.sandbox.wire.channel import Channel
from etude.sandbox.wire.live import Birth, LiveSandbox

_CREATE_PATIENCE_S = 30.0


class Cradle(Protocol):
    """Where sandboxes come from. `place` is what its runner must know beside the spec; `end_signal` tells its first process to end."""

    backend: str
    isolation: Isolation
    end_signal: signal.Signals

    def place(self, spec: SandboxSpec) -> dict[str, Any]: ...
    async def bear(self, spec: SandboxSpec, control: socket.socket) -> Birth | None:
        """Start a runner that holds `control` and says HELLO. Raises Unsupported with the step that failed and the remedy."""
        ...

    async def close(self) -> None: ...


class LocalPool:
    """Makes sandboxes; open it with `LocalPool.open`, which proves that it works by making one."""

    def __init__(self, settings: SandboxSettings, cradle: Cradle, groups: ControlGroups) -> None:
        self._cradle, self._groups = cradle, groups
        self._most_running = settings.max_running
        self._running = asyncio.Semaphore(settings.max_running)
        self._created = 0
        self._live: dict[str, LiveSandbox] = {}
        self._numbers = itertools.count(1)
        self._closed = False
        self._capabilities = Capabilities(cradle.backend, cradle.isolation, available=False, reason="not probed yet")

    @classmethod
    async def open(cls, settings: SandboxSettings, cradle: Cradle, why: str = "") -> LocalPool:
        """Raises Unsupported, with the step that failed and the remedy, where no sandbox can be made. `why`: this back end."""
        pool = cls(settings, cradle, ControlGroups.find())
        try:
            sandbox = await pool.create(SandboxSpec(files={"probe": b"1"}))
            cold = await sandbox.run(["/bin/sh", "-c", "cat probe"])
            warm = await sandbox.run(["python", "-c", "print(open('probe').read())"], warm=True)
            await sandbox.kill()
        except InfraError as error:
            await pool.close()
            if isinstance(error, Unsupported):
                raise
            said = str(error).removeprefix(f"back end {cradle.backend}: ")
            raise Unsupported(f"back end {cradle.backend}: {said}") from error
        if (cold.out, warm.out) != (b"1", b"1\n"):
            await pool.close()
            raise Unsupported(f"back end {cradle.backend}: the probe command failed: {cold} {warm}")
        python = interpreter.find()
        version = ".".join(map(str, python.version))
        reason = f"python {version} at {python.path}" + (f"; {why}" if why else "")
        pool._capabilities = Capabilities(cradle.backend, cradle.isolation, True, reason, limits=pool._groups.limits)
        return pool

    def probe(self) -> Capabilities:
        return self._capabilities

    async def create(self, spec: SandboxSpec, *, key: str | None = None) -> LiveSandbox:
        if self._closed:
            raise SandboxNotFound("the pool is closed")
        if key is not None:
            raise Unsupported("a key for create: not built yet")
        door.require(spec, self._cradle.backend, self._cradle.isolation)
        request = _spec_frame(spec, self._cradle.place(spec))
        name = f"sb-{next(self._numbers)}"
        ours, theirs = socket.socketpair()
        channel = Channel(ours, name)
        sandbox = LiveSandbox(name, spec, channel, self._running)
        sandbox.end_signal = self._cradle.end_signal
        try:
            with theirs:
                sandbox.birth = await self._cradle.bear(spec, theirs)
            async with asyncio.timeout(_CREATE_PATIENCE_S):
                if self._groups.available:
                    await channel.hello
                    sandbox.group = self._groups.make(spec, channel.pidfd)
                channel.send(request)
                await channel.ready
        except TimeoutError:
            await sandbox.kill()
            slow = InfraError(f"{name} was not ready within {_CREATE_PATIENCE_S} s; the machine is overloaded")
            raise _explained(sandbox, slow) from None
        except SandboxError as error:
            await sandbox.kill()
            raise _explained(sandbox, error) from error
        except BaseException:
            await sandbox.kill()
            raise
        self._live[name] = sandbox
        self._created += 1
        sandbox.on_end = lambda: self._live.pop(name, None)
        return sandbox

    async def restore(
        self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1
    ) -> builtins.list[Sandbox | SandboxError]:
        raise Unsupported(f"back end {self._cradle.backend} has no snapshots")

    def list(self, labels: dict[str, str] | None = None) -> list[Sandbox]:
        wanted = (labels or {}).items()
        return [one for one in self._live.values() if wanted <= one.spec.labels.items()]

    async def reap(self) -> builtins.list[str]:
        return []

    def stats(self) -> PoolStats:
        running = self._most_running - self._running._value
        return PoolStats(len(self._live), running, 0, self._created, 0, self._most_running)

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(sandbox.kill() for sandbox in list(self._live.values())))
        await self._cradle.close()
        self._groups.close()


def _explained(sandbox: LiveSandbox, error: SandboxError) -> SandboxError:
    return error if sandbox.birth is None else sandbox.birth.explain(error)


def _spec_frame(spec: SandboxSpec, place: dict[str, Any]) -> bytes:
    head = {
        "place": place,
        "workdir": spec.workdir,
        "env": spec.env,
        "memory_mb": spec.memory_mb,
        "pids": spec.pids,
        "disk_mb": spec.disk_mb,
        "bound": bool(spec.folder),
        "files": [[path, len(data)] for path, data in spec.files.items()],
    }
    try:
        return frames.pack(frames.SPEC, 0, head, b"".join(spec.files.values()))
    except frames.FrameError as error:
        raise UserError(f"the spec's files are too large: {error}") from None
