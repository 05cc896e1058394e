"""Births over layers: a pool's creates from images, restores and forks, each sandbox with a hold of what it stands on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from etude.sandbox.creation import NOTHING, Base
from etude.sandbox.errors import SandboxError, Unsupported, UserError
from etude.sandbox.layered.footing import Footing, all_born
from etude.sandbox.layered.freight import Freight
from etude.sandbox.layered.shelf import Shelf
from etude.sandbox.layers.hold import Hold
from etude.sandbox.spec import SandboxSpec, SnapshotRef
from etude.sandbox.wire.live import LiveSandbox

_MOST = 1000
_WARM = "warm_python=True over an image: warm runs are forks of the host's interpreter; set warm_python=False"


class Birth(Protocol):
    """How a pool makes one sandbox."""

    async def __call__(self, spec: SandboxSpec, base: Base, *, key: str | None) -> LiveSandbox: ...


class Layering:
    """`shelf` is None where this back end mounts no layers, and `why` says so. `soon` is called ahead of births that a copy delays."""

    memory = False  # files alone are kept

    def __init__(self, shelf: Shelf | None, birth: Birth, soon: Callable[[], None], why: str) -> None:
        self._shelf, self._birth, self._soon, self._why = shelf, birth, soon, why
        self._unproven: Shelf | None = None  # what can't be used here, to be closed
        self._freight = Freight(shelf) if shelf is not None else None

    @property
    def works(self) -> bool:
        return self._shelf is not None

    @property
    def freight(self) -> Freight | None:
        """What ships its layers to other hosts, and takes theirs."""
        return self._freight if self.works else None

    @property
    def images(self) -> bool:
        return self.works

    async def prove(self, sandbox: LiveSandbox) -> None:
        """Fork it once. Where that fails nothing of this room is offered, and every demand is told why."""
        if sandbox.footing is None:
            return
        try:
            (child,) = await sandbox.footing.fork(1, memory=False)
            if isinstance(child, SandboxError):
                raise child
            await child.kill()
        except SandboxError as error:
            self._why = f"no overlay can be mounted here, or no layers kept ({error})"
            self._unproven, self._shelf = self._shelf, None

    async def create(self, spec: SandboxSpec, key: str | None) -> LiveSandbox:
        """Raises UserError for an unknown image, LayerCorrupt, and what a birth raises."""
        if spec.snapshot:
            return await self._over(spec, key)
        if not spec.image:
            return await self._born(spec, None, key)
        held = await self._required(f"image={spec.image!r}").hold(spec.image)
        if not held.snapshot.is_image:
            held.release()
            raise UserError(f"image={spec.image!r} is a snapshot of files, no root file system; restore it")
        return await self._born(spec, held, key)

    async def _over(self, spec: SandboxSpec, key: str | None) -> LiveSandbox:
        held = await self._required(f"snapshot={spec.snapshot!r}").hold(spec.snapshot)
        if held.snapshot.is_image and spec.warm_python:
            held.release()
            raise Unsupported(_WARM)
        return await self._born(spec, held, key)

    async def restore(self, ref: SnapshotRef, spec: SandboxSpec, n: int) -> list[LiveSandbox | SandboxError]:
        """Each fails on its own; what is wrong with the snapshot itself is raised."""
        if not 1 <= n <= _MOST:
            raise UserError(f"restore of {n} sandboxes: from 1 to {_MOST} at once")
        held = await self._required("restore").hold(ref.digest)
        try:
            if held.snapshot.is_image and spec.warm_python:
                raise Unsupported(_WARM)
            return await all_born([self._born(spec, held.again(), None) for _ in range(n)])
        finally:
            held.release()

    async def close(self) -> None:
        if self._freight is not None:
            await self._freight.close()
        if (shelf := self._shelf or self._unproven) is not None:
            await shelf.close()

    async def _born(self, spec: SandboxSpec, held: Hold | None, key: str | None) -> LiveSandbox:
        try:
            sandbox = await self._birth(_furnished(spec, held), _base(held), key=key)
        except BaseException:
            if held is not None:
                held.release()
            raise
        if sandbox.footing is not None:  # a repeated key's: it has its own hold
            if held is not None:
                held.release()
        elif self._shelf is not None and not spec.folder:  # what is the host's own is in no layer
            sandbox.footing = Footing(
                sandbox, self._shelf, held, lambda child, over: self._born(child, over, None), self._soon
            )
        return sandbox

    def _required(self, demand: str) -> Shelf:
        if self._shelf is None:
            raise Unsupported(f"{demand}: {self._why}")
        return self._shelf


def _base(held: Hold | None) -> Base:
    if held is None:
        return NOTHING
    return Base(tuple(map(str, held.folders)), "image" if held.snapshot.is_image else "host")


def _furnished(spec: SandboxSpec, held: Hold | None) -> SandboxSpec:
    """With an image's own variables, below the spec's."""
    if held is None or not held.snapshot.env:
        return spec
    return replace(spec, env=held.snapshot.env | spec.env)
