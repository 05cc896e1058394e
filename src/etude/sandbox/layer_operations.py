"""The part of a live sandbox that needs layers: refused, with the reason, where its pool has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from etude.sandbox.errors import SandboxError
from etude.sandbox.protocol import Sandbox
from etude.sandbox.refusals import Refusals
from etude.sandbox.spec import Change, SnapshotRef

if TYPE_CHECKING:
    from etude.sandbox.wire.live import LiveSandbox


class Stands(Protocol):
    """What copies can be made of a sandbox: see `footing` (files, as layers) and `launch.memory` (all of it)."""

    async def snapshot(self, name: str, memory: bool) -> SnapshotRef: ...
    async def fork(self, n: int, memory: bool) -> list[LiveSandbox | SandboxError]: ...
    async def diff(self, since: SnapshotRef | None) -> list[Change]: ...
    async def git_patch(self, since: SnapshotRef | None) -> bytes: ...


class LayeredPart(Refusals):
    """`footing` is set by the pool before the sandbox is handed out."""

    footing: Stands | None = None

    async def snapshot(self, name: str = "", *, memory: bool = False) -> SnapshotRef:
        return await self._stands("snapshot").snapshot(name, memory)

    async def fork(self, n: int = 1, *, memory: bool = False) -> list[Sandbox | SandboxError]:
        return [*await self._stands("fork").fork(n, memory)]

    async def diff(self, since: SnapshotRef | None = None) -> list[Change]:
        return await self._stands("diff").diff(since)

    async def git_patch(self, since: SnapshotRef | None = None) -> bytes:
        return await self._stands("git_patch").git_patch(since)

    def _stands(self, demand: str) -> Stands:
        if self.footing is None:
            raise self._refusal(demand)
        return self.footing
