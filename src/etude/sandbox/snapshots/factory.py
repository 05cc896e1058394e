"""Creates sandboxes over layers: from images, restores and forks. Each sandbox pins the snapshot below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from etude.sandbox.creation import EMPTY_BASE, SandboxBase
from etude.sandbox.errors import SandboxError, Unsupported, UserError
from etude.sandbox.layers.store import PinnedSnapshot
from etude.sandbox.snapshots.cache import LayerCache
from etude.sandbox.snapshots.manager import LayerSnapshotManager, gather_created
from etude.sandbox.snapshots.transfer import LayerTransfer
from etude.sandbox.spec import SandboxSpec, SnapshotRef
from etude.sandbox.wire.live import LiveSandbox

_MOST = 1000
_WARM = "warm_python=True over an image: warm runs are forks of the host's interpreter; set warm_python=False"


class CreateSandbox(Protocol):
    """How a pool makes one sandbox."""

    async def __call__(self, spec: SandboxSpec, base: SandboxBase, *, key: str | None) -> LiveSandbox: ...


class LayeredSandboxFactory:
    """`shelf` is None where this back end mounts no layers, and `why` says so. `soon` is called ahead of births that a copy delays."""

    memory = False  # files alone are kept

    def __init__(
        self, layer_cache: LayerCache | None, create_sandbox: CreateSandbox, soon: Callable[[], None], why: str
    ) -> None:
        self._layer_cache, self._create_sandbox, self._soon, self._why = layer_cache, create_sandbox, soon, why
        self._unproven: LayerCache | None = None  # what can't be used here, to be closed
        self._layer_transfer = LayerTransfer(layer_cache) if layer_cache is not None else None

    @property
    def works(self) -> bool:
        return self._layer_cache is not None

    @property
    def layer_transfer(self) -> LayerTransfer | None:
        """What ships its layers to other hosts, and takes theirs."""
        return self._layer_transfer if self.works else None

    @property
    def images(self) -> bool:
        return self.works

    async def prove(self, sandbox: LiveSandbox) -> None:
        """Fork it once. Where that fails, snapshots are off and every request for one gets the reason."""
        if sandbox.snapshot_manager is None:
            return
        try:
            (child,) = await sandbox.snapshot_manager.fork(1, memory=False)
            if isinstance(child, SandboxError):
                raise child
            await child.kill()
        except SandboxError as error:
            self._why = f"no overlay can be mounted here, or no layers kept ({error})"
            self._unproven, self._layer_cache = self._layer_cache, None

    async def create(self, spec: SandboxSpec, key: str | None) -> LiveSandbox:
        """Raises UserError for an unknown image, LayerCorrupt, and what a birth raises."""
        if spec.snapshot:
            return await self._create_from_snapshot(spec, key)
        if not spec.image:
            return await self._create_over(spec, None, key)
        pinned = await self._required(f"image={spec.image!r}").hold(spec.image)
        if not pinned.snapshot.is_image:
            pinned.release()
            raise UserError(f"image={spec.image!r} is a snapshot of files, no root file system; restore it")
        return await self._create_over(spec, pinned, key)

    async def _create_from_snapshot(self, spec: SandboxSpec, key: str | None) -> LiveSandbox:
        pinned = await self._required(f"snapshot={spec.snapshot!r}").hold(spec.snapshot)
        if pinned.snapshot.is_image and spec.warm_python:
            pinned.release()
            raise Unsupported(_WARM)
        return await self._create_over(spec, pinned, key)

    async def restore(self, ref: SnapshotRef, spec: SandboxSpec, n: int) -> list[LiveSandbox | SandboxError]:
        """Each fails on its own; what is wrong with the snapshot itself is raised."""
        if not 1 <= n <= _MOST:
            raise UserError(f"restore of {n} sandboxes: from 1 to {_MOST} at once")
        pinned = await self._required("restore").hold(ref.digest)
        try:
            if pinned.snapshot.is_image and spec.warm_python:
                raise Unsupported(_WARM)
            return await gather_created([self._create_over(spec, pinned.pin_again(), None) for _ in range(n)])
        finally:
            pinned.release()

    async def close(self) -> None:
        if self._layer_transfer is not None:
            await self._layer_transfer.close()
        if (layer_cache := self._layer_cache or self._unproven) is not None:
            await layer_cache.close()

    async def _create_over(self, spec: SandboxSpec, pinned: PinnedSnapshot | None, key: str | None) -> LiveSandbox:
        try:
            sandbox = await self._create_sandbox(_with_image_environment(spec, pinned), _base(pinned), key=key)
        except BaseException:
            if pinned is not None:
                pinned.release()
            raise
        if sandbox.snapshot_manager is not None:  # a repeated key's: it has its own hold
            if pinned is not None:
                pinned.release()
        elif self._layer_cache is not None and not spec.folder:  # what is the host's own is in no layer
            sandbox.snapshot_manager = LayerSnapshotManager(
                sandbox, self._layer_cache, pinned, lambda child, over: self._create_over(child, over, None), self._soon
            )
        return sandbox

    def _required(self, demand: str) -> LayerCache:
        if self._layer_cache is None:
            raise Unsupported(f"{demand}: {self._why}")
        return self._layer_cache


def _base(pinned: PinnedSnapshot | None) -> SandboxBase:
    if pinned is None:
        return EMPTY_BASE
    return SandboxBase(tuple(map(str, pinned.folders)), "image" if pinned.snapshot.is_image else "host")


def _with_image_environment(spec: SandboxSpec, pinned: PinnedSnapshot | None) -> SandboxSpec:
    """With an image's own variables, below the spec's."""
    if pinned is None or not pinned.snapshot.env:
        return spec
    return replace(spec, env=pinned.snapshot.env | spec.env)
