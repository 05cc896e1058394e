"""Creates one sandbox, whole or not at all. Each step has a name, so that a test can make it fail and check that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from etude.sandbox import interpreter
from etude.sandbox.cleanup.undo import Undo
from etude.sandbox.errors import InfraError, SandboxDied, SandboxError, Unsupported, UserError
from etude.sandbox.inside import frames
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.network.egress import PoolEgress
from etude.sandbox.network.rules import environment
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire.channel import ControlChannel
from etude.sandbox.wire.live import BackendHandle, LiveSandbox

_PATIENCE_S = 30.0
_LARGE_BYTES = 1 << 20  # first files beyond this are written only within the limits; less is not worth the wait
# spawn: the first process starts. hello: it reports. group: it enters its control group. spec: it gets its spec. ready: it is set up.
# egress: its egress proxy serves, where it has one.
# Without a control group a process has separate limits, which count what it reserves and not what it holds; the watch counts that. They
# leave room for the stacks of 500 threads (8 MiB each), and for what V8 reserves: 10 GiB around each WebAssembly memory (fetch has one) and 128
# MiB of code for each worker, of which there may be eight.
THREADS_MB = 4608
RESERVED_MB = 160 << 10
STEPS = ("spawn", "hello", "group", "spec", "ready", "egress")


@dataclass(frozen=True)
class MemoryCopy:
    """A copy of a whole sandbox in a folder of its back end. Without `processes` everything except the runner is killed when it resumes."""

    folder: str
    processes: bool


@dataclass(frozen=True)
class SandboxBase:
    """What a sandbox starts from: folders of layers in the back end's store, topmost first, around the host's system directories or as the
    root itself; or another one's memory."""

    layers: tuple[str, ...] = ()
    root: Literal["host", "image"] = "host"
    memory: MemoryCopy | None = None


EMPTY_BASE = SandboxBase()


class MemoryBackend(Protocol):
    """The part of a back end that copies memory."""

    async def keep(self, backend_handle: BackendHandle | None, processes: bool) -> MemoryCopy:
        """Copy the sandbox of this handle, which ends with that. Raises SandboxError, and then it may have ended or not."""
        ...

    async def spawn(self, spec: SandboxSpec, memory: MemoryCopy, control: socket.socket) -> BackendHandle:
        """Another one that goes on from there, over another connection."""
        ...

    async def forget(self, memory: MemoryCopy) -> None: ...


class SandboxBackend(Protocol):
    """A source of sandboxes. `place` is the runner's input in addition to the spec; `end_signal` ends its first process;
    `stores` are the folders of layers that it can mount, if any; `unranged` is why no sandbox of its can have a range of users, "" where it
    can. `memory_backend` is there where memory can be copied."""

    backend: str
    isolation: Isolation
    end_signal: signal.Signals
    stores: tuple[str, ...]
    uid_range_problem: str
    egress: bool
    memory_backend: MemoryBackend | None

    def group_spec(self, spec: SandboxSpec) -> SandboxSpec:
        """What a control group around all its processes must bear for the inside to have what the spec says."""
        ...

    def leftovers(self) -> tuple[Undo, ...]:
        """How to undo what this process would leave by dying now. The ledger records it before the first sandbox."""
        ...

    def place(self, spec: SandboxSpec) -> dict[str, Any]: ...
    async def spawn(self, spec: SandboxSpec, control: socket.socket) -> BackendHandle | None:
        """Start a runner that holds `control` and says HELLO. Raises Unsupported with the step that failed and the remedy."""
        ...

    def parent(self, spec: SandboxSpec) -> int:
        """The process of which the first one inside will be a fork, if it is there already; else 0."""
        ...

    async def runner(self) -> str:
        """What process 1 is: native or python."""
        ...

    async def close(self) -> None: ...


class SandboxCreator:
    """Creates sandboxes of one back end. It calls `before` with each step's name ahead of that step."""

    def __init__(
        self, backend: SandboxBackend, groups: ControlGroups, running: asyncio.Semaphore, egress: PoolEgress
    ) -> None:
        self._backend, self._groups, self._running = backend, groups, running
        self._egress = egress
        self.before: Callable[[str], None] = lambda step: None

    async def make(self, spec: SandboxSpec, base: SandboxBase = EMPTY_BASE, name: str = "a sandbox") -> LiveSandbox:
        """A sandbox that is ready. Raises typed errors, and then nothing is left of it."""
        self._groups.require(spec)
        if spec.uid_mode == "range" and self._backend.uid_range_problem:
            raise Unsupported(f"uid_mode='range': back end {self._backend.backend}: {self._backend.uid_range_problem}")
        place = self._backend.place(spec) | self._place(base)
        request = b"" if base.memory is not None else spec_frame(spec, place, grouped=self._groups.available)
        ours, theirs = socket.socketpair()
        channel = ControlChannel(ours, name)
        sandbox = LiveSandbox(name, spec, channel, self._running)
        sandbox.backend, sandbox.end_signal = self._backend.backend, self._backend.end_signal
        try:
            await self._start(sandbox, channel, base, request, theirs)
        except TimeoutError:
            await sandbox.kill()
            slow = InfraError(f"{name} was not ready within {_PATIENCE_S} s; the machine is overloaded")
            raise _explained(sandbox, slow) from None
        except SandboxError as error:
            await sandbox.kill()
            raise _explained(sandbox, error) from error
        except BaseException:
            await sandbox.kill()
            raise
        return sandbox

    async def _start(
        self, sandbox: LiveSandbox, channel: ControlChannel, base: SandboxBase, request: bytes, theirs: socket.socket
    ) -> None:
        spec = sandbox.spec
        try:
            with theirs:
                if self._groups.available:
                    sandbox.group = self._groups.make(self._backend.group_spec(spec), self._backend.parent(spec))
                self.before("spawn")
                sandbox.backend_handle = await self._spawn(spec, base, theirs)
                if sandbox.backend_handle is not None and sandbox.backend_handle.first >= 0:
                    channel.introduce(sandbox.backend_handle.first)
            async with asyncio.timeout(_PATIENCE_S):
                if base.memory is not None:
                    channel.take_up()
                await self._configure(sandbox, channel, request)
                if base.memory is not None:
                    await _resume_copy(sandbox, base.memory)
        finally:
            self._groups.park(self._backend.parent(spec))  # out of the group of one whose birth failed

    async def _spawn(self, spec: SandboxSpec, base: SandboxBase, control: socket.socket) -> BackendHandle | None:
        if base.memory is None:
            return await self._backend.spawn(spec, control)
        if self._backend.memory_backend is None:
            raise Unsupported(f"back end {self._backend.backend} copies no memory; sandbox.backend='gvisor' can")
        return await self._backend.memory_backend.spawn(spec, base.memory, control)

    async def _configure(self, sandbox: LiveSandbox, channel: ControlChannel, request: bytes) -> None:
        group = sandbox.group
        if group is not None:
            self.before("hello")
            await channel.hello
            self.before("group")
            group.enter(channel.pidfd)
            self._groups.park(self._backend.parent(sandbox.spec))  # behind it in the same line: it may take its time
            if len(request) > _LARGE_BYTES:
                await group.require_entered()
        self.before("spec")
        channel.send(request)
        self.before("ready")
        await channel.ready
        if group is not None:
            await group.require_entered()  # nothing of the client's runs before
        if sandbox.spec.network.mode == "allowlist":
            self.before("egress")
            await self._open_egress(sandbox)

    async def _open_egress(self, sandbox: LiveSandbox) -> None:
        if "egress" not in sandbox.granted:
            raise InfraError(f"{sandbox.id}: the inside granted no way out")
        egress = await self._egress.open(sandbox.id, sandbox.spec.network, sandbox.granted["egress"])
        sandbox.egress = egress
        sandbox.call_on_death(egress.shut)
        sandbox.call_when_gone(egress.close)
        if sandbox.state == "dead":
            raise SandboxDied(f"{sandbox.id} died while its way out was opened")

    def _place(self, base: SandboxBase) -> dict[str, Any]:
        if not base.layers and base.root == "host":
            return {}
        if not self._backend.stores:
            raise Unsupported(f"back end {self._backend.backend} can't mount layers; sandbox.backend='local' can")
        return {"layers": [_store_path(one, self._backend.stores) for one in base.layers], "root": base.root}


def _store_path(layer: str, stores: tuple[str, ...]) -> str:
    """A layer's folder as the zygote has it in sight: the number of its store, and its path there."""
    number = next(number for number, store in enumerate(stores) if layer.startswith(store + "/"))
    return f"{number}/{os.path.relpath(layer, stores[number])}"


async def _resume_copy(sandbox: LiveSandbox, memory: MemoryCopy) -> None:
    """It goes on where the one it is a copy of stood; what is new in its spec comes on top. The first answer is the proof that it lives."""
    if not memory.processes:
        await sandbox.run("kill -9 -1", timeout_s=_PATIENCE_S)
    await sandbox.stat(".")
    for path, data in sandbox.spec.files.items():
        await sandbox.write(path, data)


def _explained(sandbox: LiveSandbox, error: SandboxError) -> SandboxError:
    return error if sandbox.backend_handle is None else sandbox.backend_handle.explain(error)


def spec_frame(spec: SandboxSpec, place: dict[str, Any], *, grouped: bool = False) -> bytes:
    """The SPEC frame. `grouped`: a control group bounds its memory. Raises UserError for more files than one frame holds."""
    data_mb, address_mb = (0, 0) if grouped else (spec.memory_mb + THREADS_MB, 4 * spec.memory_mb + RESERVED_MB)
    head = {
        "place": place,
        "workdir": spec.workdir,
        "env": {**environment(spec.network), **spec.env},
        "memory_mb": spec.memory_mb,
        "data_mb": data_mb,
        "address_mb": address_mb,
        "pids": spec.pids,
        "disk_mb": spec.disk_mb,
        "bound": bool(spec.folder),
        "python": interpreter.find().path if spec.warm_python else None,
        "files": [[path, len(data)] for path, data in spec.files.items()],
    }
    try:
        return frames.pack(frames.SPEC, 0, head, b"".join(spec.files.values()))
    except frames.FrameError as error:
        raise UserError(f"the spec's files are too large: {error}") from None
