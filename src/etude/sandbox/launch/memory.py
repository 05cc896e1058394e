"""Sandboxes whose memory can be copied: the whole of one, processes and files, is written to a folder, and goes on from there any number
of times. For a moment (0.3 s) the copied one is in no process at all; requests wait for it.

Whatever runs inside goes on in every copy, also the warm interpreter with all it holds. Each copy has the same random state and the same
clock. A copy without processes (`memory=False`) is the same, with all but the runner killed at its birth.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from etude.sandbox.creation import MemoryBackend, MemoryCopy, SandboxBase
from etude.sandbox.errors import SandboxDied, SandboxError, Unsupported, UserError
from etude.sandbox.inside import frames
from etude.sandbox.snapshots.factory import CreateSandbox
from etude.sandbox.snapshots.manager import gather_created
from etude.sandbox.spec import FileChange, SandboxSpec, SnapshotRef
from etude.sandbox.wire.channel import ControlChannel
from etude.sandbox.wire.live import BackendHandle, LiveSandbox

T = TypeVar("T")

_MOST = 100  # each is a program of its own, and its whole memory
_PATIENCE_S = 30.0  # 0.2 s on a quiet machine
# A process that holds a word, and waits with a timer for somebody to ask for it.
_HOLD = "(word=kept; while ! [ -e asked ]; do sleep 0.02; done; echo $word >reply; mv reply answer) >/dev/null 2>&1 &"
_ASK = ": >asked; while ! [ -e answer ]; do sleep 0.02; done; cat answer"


@dataclass(frozen=True)
class _SavedMemory:
    memory: MemoryCopy
    spec: SandboxSpec


class MemorySandboxFactory:
    """A pool's part: as `layered.Layering`. Snapshots are kept until the pool closes; what a fork needs goes with the fork."""

    images = False
    layer_transfer = None  # files are in memory, not in layers

    def __init__(self, memory_backend: MemoryBackend, create_sandbox: CreateSandbox, backend: str) -> None:
        self._memory_backend, self._create_sandbox, self.backend = memory_backend, create_sandbox, backend
        self.memory = False
        self._why = ""
        self._kept: dict[str, _SavedMemory] = {}

    @property
    def works(self) -> bool:
        return self.memory  # files are a part of it

    async def prove(self, sandbox: LiveSandbox) -> None:
        """Copy one that has a process with a value in its memory, and ask the copy for it. Many a release can't."""
        assert isinstance(sandbox.snapshot_manager, MemorySnapshotManager)
        try:
            await sandbox.run(_HOLD)
            (child,) = await sandbox.snapshot_manager.copies(1, processes=True)
            if isinstance(child, SandboxError):
                raise child
            for one in (child, sandbox):
                done = await one.run(_ASK)
                if done.out != b"kept\n":
                    raise SandboxDied(f"a process did not go on: {done}")
            await child.kill()
            self.memory = True
        except SandboxError as error:
            self._why = f"its memory can't be copied here ({error})"

    async def create(self, spec: SandboxSpec, key: str | None) -> LiveSandbox:
        if called := spec.snapshot or spec.image:
            raise Unsupported(
                f"{'snapshot' if spec.snapshot else 'image'}={called!r}: back end {self.backend} mounts no layers; sandbox.backend='local' can"
            )
        return self._with_snapshot_manager(await self._create_sandbox(spec, SandboxBase(), key=key))

    async def restore(self, ref: SnapshotRef, spec: SandboxSpec, n: int) -> list[LiveSandbox | SandboxError]:
        """Raises UserError for a snapshot that is not this pool's, and for a spec that no copy can meet."""
        kept = self._kept.get(ref.digest)
        if kept is None:
            raise UserError(
                f"no snapshot {ref.digest!r} in this pool; what back end {self.backend} keeps ends with the pool that made it"
            )
        if _unchangeable(spec) != _unchangeable(kept.spec):
            raise UserError(
                f"snapshot {ref.digest!r} goes on as it was: only files, labels, ttl_s, idle_ttl_s and cpus may differ from its spec"
            )
        return await self.create_copies(kept.memory, spec, n)

    async def close(self) -> None:
        for kept in self._kept.values():
            await self._memory_backend.forget(kept.memory)
        self._kept.clear()

    def keep(self, memory: MemoryCopy, spec: SandboxSpec) -> str:
        digest = f"memory-{os.urandom(16).hex()}"
        self._kept[digest] = _SavedMemory(memory, spec)
        return digest

    async def create_copies(self, memory: MemoryCopy, spec: SandboxSpec, n: int) -> list[LiveSandbox | SandboxError]:
        """Each fails on its own."""
        require_number(n)
        births: list[Awaitable[LiveSandbox]] = [self._copy(memory, spec) for _ in range(n)]
        return await gather_created(births)

    async def copied(self, backend_handle: BackendHandle | None, processes: bool) -> MemoryCopy:
        if self._why:
            raise Unsupported(f"back end {self.backend}: {self._why}")
        return await self._memory_backend.keep(backend_handle, processes)

    async def recalled(self, sandbox: LiveSandbox, memory: MemoryCopy) -> tuple[ControlChannel, BackendHandle]:
        """Another process for a sandbox that has left its own."""
        ours, theirs = socket.socketpair()
        channel, backend_handle = ControlChannel(ours, sandbox.id), None
        try:
            with theirs:
                backend_handle = await self._memory_backend.spawn(sandbox.spec, memory, theirs)
            channel.introduce(backend_handle.first)
            channel.take_up()
            if sandbox.group is not None:
                sandbox.group.enter(channel.pidfd)
                await sandbox.group.require_entered()
            await channel.call(frames.STAT, {"path": "."}, patience_s=_PATIENCE_S)
        except BaseException:
            await discard(channel, backend_handle)
            raise
        return channel, backend_handle

    async def forget(self, memory: MemoryCopy) -> None:
        await self._memory_backend.forget(memory)

    async def _copy(self, memory: MemoryCopy, spec: SandboxSpec) -> LiveSandbox:
        return self._with_snapshot_manager(await self._create_sandbox(spec, SandboxBase(memory=memory), key=None))

    def _with_snapshot_manager(self, sandbox: LiveSandbox) -> LiveSandbox:
        if sandbox.snapshot_manager is None:
            sandbox.snapshot_manager = MemorySnapshotManager(sandbox, self)
        return sandbox


class MemorySnapshotManager:
    """The part of one sandbox."""

    def __init__(self, sandbox: LiveSandbox, memories: MemorySandboxFactory) -> None:
        self._sandbox, self._memories = sandbox, memories
        self._turn = asyncio.Lock()

    async def snapshot(self, name: str, memory: bool) -> SnapshotRef:
        kept = await _finish_despite_cancel(self._take(memory))
        return SnapshotRef(self._memories.keep(kept, self._sandbox.spec), name)

    async def fork(self, n: int, memory: bool) -> list[LiveSandbox | SandboxError]:
        return await self.copies(n, memory)

    async def copies(self, n: int, processes: bool) -> list[LiveSandbox | SandboxError]:
        require_number(n)
        task = asyncio.ensure_future(self._copy(n, processes))
        try:
            return await _finish_despite_cancel(task)
        except asyncio.CancelledError:
            if not task.cancelled() and task.exception() is None:
                await _end_all(task.result())
            raise

    async def diff(self, since: SnapshotRef | None) -> list[FileChange]:
        raise self._no("diff")

    async def git_patch(self, since: SnapshotRef | None) -> bytes:
        raise self._no("git_patch")

    def _no(self, demand: str) -> Unsupported:
        return Unsupported(
            f"{demand}: back end {self._memories.backend} keeps files in memory, not in layers; sandbox.backend='local' can"
        )

    async def _take(self, processes: bool) -> MemoryCopy:
        async with self._turn:
            memory = await self._left(processes)
            try:
                await self._return(memory)
            except BaseException:
                await self._memories.forget(memory)
                raise
            return memory

    async def _copy(self, n: int, processes: bool) -> list[LiveSandbox | SandboxError]:
        """The children do not wait for their parent to be back."""
        async with self._turn:
            memory = await self._left(processes)
            births = self._memories.create_copies(memory, replace(self._sandbox.spec, files={}), n)
            children, back = await asyncio.gather(births, self._return(memory), return_exceptions=True)
            await self._memories.forget(memory)
        if isinstance(children, BaseException):
            raise children
        if back is not None:
            await _end_all(children)
            raise back
        return children

    async def _left(self, processes: bool) -> MemoryCopy:
        """From here on it is in no process."""
        self._sandbox.leave()
        try:
            return await self._memories.copied(self._sandbox.backend_handle, processes)
        except BaseException:
            self._sandbox.require_alive()  # killed meanwhile: says who did it
            self._sandbox.come_back()  # if it died of it, that is heard now
            raise

    async def _return(self, memory: MemoryCopy) -> None:
        sandbox, before = self._sandbox, self._sandbox.backend_handle
        try:
            channel, backend_handle = await self._memories.recalled(sandbox, memory)
        except SandboxError as error:
            sandbox.end(f"did not go on after its memory was copied: {error}")
            raise SandboxDied(f"{sandbox.id} did not go on after its memory was copied: {error}") from error
        if sandbox.state == "dead":  # killed meanwhile
            await discard(channel, backend_handle)
            sandbox.require_alive()
        sandbox.come_back(channel, backend_handle)
        if before is not None:
            await before.end()


def require_number(n: int) -> None:
    if not 1 <= n <= _MOST:
        raise UserError(f"{n} copies of a memory: from 1 to {_MOST} at once")


async def _finish_despite_cancel(doing: Awaitable[T]) -> T:
    """Its end is waited for even by a caller who was cancelled: half-way, a sandbox is nowhere."""
    task = asyncio.ensure_future(doing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def _end_all(create_copies: list[LiveSandbox | SandboxError]) -> None:
    await asyncio.gather(*(one.kill() for one in create_copies if isinstance(one, LiveSandbox)))


async def discard(channel: ControlChannel, backend_handle: BackendHandle | None) -> None:
    """End a process that has no owner any more."""
    channel.fail(SandboxDied("it is not needed any more"))
    if channel.pidfd >= 0:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(channel.pidfd, signal.SIGKILL)
        os.close(channel.pidfd)
    if backend_handle is not None:
        await backend_handle.end()


def _unchangeable(spec: SandboxSpec) -> SandboxSpec:
    """What is in the memory, and can't be another in a copy."""
    return replace(spec, files={}, labels={}, ttl_s=None, idle_ttl_s=None, cpus=None)
