"""One birth, whole or not at all. Each step has a name, so that a test can make any of them fail and find that nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from etude.sandbox.cleanup.undo import Undo
from etude.sandbox.errors import InfraError, SandboxDied, SandboxError, Unsupported, UserError
from etude.sandbox.inside import frames
from etude.sandbox.limits.groups import ControlGroups
from etude.sandbox.network.gates import Gates
from etude.sandbox.network.rules import environment
from etude.sandbox.spec import Isolation, SandboxSpec
from etude.sandbox.wire.channel import Channel
from etude.sandbox.wire.live import Birth, LiveSandbox

_PATIENCE_S = 30.0
_LARGE_BYTES = 1 << 20  # first files beyond this are written only within the limits; less is not worth the wait
# bear: its first process is started. hello: it is known. group: its control group. spec: it is told what to be. ready: it is.
# gate: its policed way out is served, where it has one.
# Without a control group a process has separate limits, which count what it reserves and not what it holds; the watch counts that. They
# leave room for the stacks of 500 threads (8 MiB each), and for what V8 reserves: 10 GiB around each WebAssembly memory (fetch has one) and 128
# MiB of code for each worker, of which there may be eight.
THREADS_MB = 4608
RESERVED_MB = 160 << 10
STEPS = ("bear", "hello", "group", "spec", "ready", "gate")


@dataclass(frozen=True)
class Memory:
    """A copy of all that a sandbox was, in a folder of its cradle. Without `processes` all but the runner are killed as it goes on."""

    folder: str
    processes: bool


@dataclass(frozen=True)
class Base:
    """What a sandbox starts from: folders of layers in the cradle's store, topmost first, around the host's system directories or as the
    root itself; or another one's memory."""

    layers: tuple[str, ...] = ()
    root: Literal["host", "image"] = "host"
    memory: Memory | None = None


NOTHING = Base()


class Recall(Protocol):
    """The part of a cradle that copies memory."""

    async def keep(self, birth: Birth | None, processes: bool) -> Memory:
        """What it stands beside ends with that. Raises SandboxError, and then it may have ended or not."""
        ...

    async def bear(self, spec: SandboxSpec, memory: Memory, control: socket.socket) -> Birth:
        """Another one that goes on from there, over another connection."""
        ...

    async def forget(self, memory: Memory) -> None: ...


class Cradle(Protocol):
    """Where sandboxes come from. `place` is what its runner must know beside the spec; `end_signal` tells its first process to end;
    `stores` are the folders of layers that it can mount, if any; `unranged` is why no sandbox of its can have a range of users, "" where it
    can. `recall` is there where memory can be copied."""

    backend: str
    isolation: Isolation
    end_signal: signal.Signals
    stores: tuple[str, ...]
    unranged: str
    egress: bool
    recall: Recall | None

    def burden(self, spec: SandboxSpec) -> SandboxSpec:
        """What a control group around all its processes must bear for the inside to have what the spec says."""
        ...

    def leavings(self) -> tuple[Undo, ...]:
        """How to undo what it would leave if this process died now; written in the ledger before its first sandbox."""
        ...

    def place(self, spec: SandboxSpec) -> dict[str, Any]: ...
    async def bear(self, spec: SandboxSpec, control: socket.socket) -> Birth | None:
        """Start a runner that holds `control` and says HELLO. Raises Unsupported with the step that failed and the remedy."""
        ...

    def parent(self, spec: SandboxSpec) -> int:
        """The process of which the first one inside will be a fork, if it is there already; else 0."""
        ...

    async def runner(self) -> str:
        """What serves where no warm interpreter is asked for: native or python."""
        ...

    async def close(self) -> None: ...


class Maker:
    """Gives birth to sandboxes of one cradle. `before` is called with each step's name ahead of it."""

    def __init__(self, cradle: Cradle, groups: ControlGroups, running: asyncio.Semaphore, gates: Gates) -> None:
        self._cradle, self._groups, self._running = cradle, groups, running
        self._gates = gates
        self.before: Callable[[str], None] = lambda step: None

    async def make(self, spec: SandboxSpec, base: Base = NOTHING, name: str = "a sandbox") -> LiveSandbox:
        """A sandbox that is ready. Raises typed errors, and then nothing is left of it."""
        self._groups.require(spec)
        if spec.uid_mode == "range" and self._cradle.unranged:
            raise Unsupported(f"uid_mode='range': back end {self._cradle.backend}: {self._cradle.unranged}")
        place = self._cradle.place(spec) | self._place(base)
        request = b"" if base.memory is not None else spec_frame(spec, place, grouped=self._groups.available)
        ours, theirs = socket.socketpair()
        channel = Channel(ours, name)
        sandbox = LiveSandbox(name, spec, channel, self._running)
        sandbox.backend, sandbox.end_signal = self._cradle.backend, self._cradle.end_signal
        try:
            await self._give_birth(sandbox, channel, base, request, theirs)
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

    async def _give_birth(
        self, sandbox: LiveSandbox, channel: Channel, base: Base, request: bytes, theirs: socket.socket
    ) -> None:
        spec = sandbox.spec
        try:
            with theirs:
                if self._groups.available:
                    sandbox.group = self._groups.make(self._cradle.burden(spec), self._cradle.parent(spec))
                self.before("bear")
                sandbox.birth = await self._bear(spec, base, theirs)
                if sandbox.birth is not None and sandbox.birth.first >= 0:
                    channel.introduce(sandbox.birth.first)
            async with asyncio.timeout(_PATIENCE_S):
                if base.memory is not None:
                    channel.take_up()
                await self._raise(sandbox, channel, request)
                if base.memory is not None:
                    await _wake(sandbox, base.memory)
        finally:
            self._groups.park(self._cradle.parent(spec))  # out of the group of one whose birth failed

    async def _bear(self, spec: SandboxSpec, base: Base, control: socket.socket) -> Birth | None:
        if base.memory is None:
            return await self._cradle.bear(spec, control)
        if self._cradle.recall is None:
            raise Unsupported(f"back end {self._cradle.backend} copies no memory; sandbox.backend='gvisor' can")
        return await self._cradle.recall.bear(spec, base.memory, control)

    async def _raise(self, sandbox: LiveSandbox, channel: Channel, request: bytes) -> None:
        group = sandbox.group
        if group is not None:
            self.before("hello")
            await channel.hello
            self.before("group")
            group.enter(channel.pidfd)
            self._groups.park(self._cradle.parent(sandbox.spec))  # behind it in the same line: it may take its time
            if len(request) > _LARGE_BYTES:
                await group.entered()
        self.before("spec")
        channel.send(request)
        self.before("ready")
        await channel.ready
        if group is not None:
            await group.entered()  # nothing of the client's runs before
        if sandbox.spec.network.mode == "allowlist":
            self.before("gate")
            await self._open_gate(sandbox)

    async def _open_gate(self, sandbox: LiveSandbox) -> None:
        if "egress" not in sandbox.granted:
            raise InfraError(f"{sandbox.id}: the inside granted no way out")
        gate = await self._gates.open(sandbox.id, sandbox.spec.network, sandbox.granted["egress"])
        sandbox.gate = gate
        sandbox.at_death(gate.shut)
        sandbox.afterwards(gate.close)
        if sandbox.state == "dead":
            raise SandboxDied(f"{sandbox.id} died while its way out was opened")

    def _place(self, base: Base) -> dict[str, Any]:
        if not base.layers and base.root == "host":
            return {}
        if not self._cradle.stores:
            raise Unsupported(f"back end {self._cradle.backend} can't mount layers; sandbox.backend='local' can")
        return {"layers": [_short(one, self._cradle.stores) for one in base.layers], "root": base.root}


def _short(layer: str, stores: tuple[str, ...]) -> str:
    """A layer's folder as the zygote has it in sight: the number of its store, and its path there."""
    number = next(number for number, store in enumerate(stores) if layer.startswith(store + "/"))
    return f"{number}/{os.path.relpath(layer, stores[number])}"


async def _wake(sandbox: LiveSandbox, memory: Memory) -> None:
    """It goes on where the one it is a copy of stood; what is new in its spec comes on top. The first answer is the proof that it lives."""
    if not memory.processes:
        await sandbox.run("kill -9 -1", timeout_s=_PATIENCE_S)
    await sandbox.stat(".")
    for path, data in sandbox.spec.files.items():
        await sandbox.write(path, data)


def _explained(sandbox: LiveSandbox, error: SandboxError) -> SandboxError:
    return error if sandbox.birth is None else sandbox.birth.explain(error)


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
        "files": [[path, len(data)] for path, data in spec.files.items()],
    }
    try:
        return frames.pack(frames.SPEC, 0, head, b"".join(spec.files.values()))
    except frames.FrameError as error:
        raise UserError(f"the spec's files are too large: {error}") from None
