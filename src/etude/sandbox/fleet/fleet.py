"""Many hosts as one `SandboxPool`: a user of sandboxes sees no difference but in how many there can be.

Promises: a create that succeeds made exactly one sandbox that lives on, however many answers were lost on the way; a sandbox that its host
took along fails with a typed infra fault and is never silently replaced; only retryable infra faults are tried again.
"""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
import random
import secrets
from collections.abc import Awaitable, Callable, Hashable, Sequence

from etude.sandbox.errors import InfraError, SandboxError, SandboxNotFound, Unsupported, UserError
from etude.sandbox.fleet import warmth
from etude.sandbox.fleet.box import FleetSandbox
from etude.sandbox.fleet.creation import FleetCreation
from etude.sandbox.fleet.host import Host
from etude.sandbox.fleet.hosts import HostRegistry
from etude.sandbox.fleet.placement import Placement
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.shipping import Shipping
from etude.sandbox.fleet.single_flight import SingleFlight
from etude.sandbox.fleet.warmth import WarmPlan
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import Capabilities, Network, PoolStats, SandboxSpec, SnapshotRef

# Sandboxes of hot kinds made before they are asked for. A claim only writes the spec's own files and sets its
# network.


_SWEEP_S = 10.0


class WarmPool:
    def __init__(self, plan: WarmPlan, make: Callable[[SandboxSpec], Awaitable[FleetSandbox]]) -> None:
        self._plan, self._make = plan, make
        self._idle: dict[Hashable, list[FleetSandbox]] = {}
        self._specs: dict[Hashable, SandboxSpec] = {}
        self._coming: dict[Hashable, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.claimed = 0

    def start(self) -> None:
        self._begin(self._sweep())

    async def claim(self, spec: SandboxSpec) -> FleetSandbox | None:
        """One that is ready, now this spec's; None: make one."""
        if not warmth.claimable(spec):
            return None
        kind, now = warmth.kind(spec), asyncio.get_running_loop().time()
        self._plan.on_request(kind, now)
        self._specs[kind] = warmth.bare(spec)
        self._fill(kind)
        idle = self._idle.get(kind, [])
        while idle:
            box = idle.pop()
            if box.state != "running":
                continue
            self._fill(kind)
            if await self._dress(box, spec):
                self.claimed += 1
                return box
        return None

    def held(self) -> list[FleetSandbox]:
        return [box for idle in self._idle.values() for box in idle]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _dress(self, box: FleetSandbox, spec: SandboxSpec) -> bool:
        try:
            for path, data in spec.files.items():
                await box.write(path, data)
            if spec.network != Network(spec.network.mode):
                await box.set_network(spec.network)
        except (
            SandboxError
        ):  # it was not handed out yet: a fresh one is made instead, and says the same if it is the spec's fault
            await box.kill()
            return False
        box.spec = spec
        return True

    def _fill(self, kind: Hashable) -> None:
        wanted = self._plan.wanted_count(kind, asyncio.get_running_loop().time())
        have = len(self._idle.get(kind, ())) + self._coming.get(kind, 0)
        for _ in range(wanted - have):
            self._coming[kind] = self._coming.get(kind, 0) + 1
            self._begin(self._add(kind))

    async def _add(self, kind: Hashable) -> None:
        try:
            box = await self._make(self._specs[kind])
            self._idle.setdefault(kind, []).append(box)
        except SandboxError:
            return  # the next caller makes its own, and gets the reason if that fails
        finally:
            self._coming[kind] -= 1

    async def _sweep(self) -> None:
        """Kinds gone cold give their room back."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = asyncio.get_running_loop().time()
            for kind in list(self._idle):
                wanted = self._plan.wanted_count(kind, now)
                idle = self._idle[kind]
                surplus, self._idle[kind] = idle[wanted:], idle[:wanted]
                await asyncio.gather(*(box.kill() for box in surplus))
                if not self._idle[kind]:
                    del self._idle[kind]

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_MOST = 1000  # restored at once, as in one pool


class Fleet:
    """Open it with `Fleet.open`. `owner`: by it the hosts tell this fleet's sandboxes from another's."""

    def __init__(self, settings: FleetSettings, placement: Placement, owner: str, rng: random.Random) -> None:
        self._settings = settings
        self.registry = HostRegistry(owner, placement, rng)
        self.shipping = Shipping(self.registry, rng)
        self._creation = FleetCreation(settings, self.registry, self.shipping, self, rng)
        self.ready = WarmPool(WarmPlan(settings.warm), self._creation.spawn)
        self._keys: SingleFlight[Sandbox] = SingleFlight(stale=lambda box: box.state == "dead")
        self.after_close: builtins.list[
            Callable[[], Awaitable[None]]
        ] = []  # of the caller that opened hosts for this fleet alone
        self._closed = False

    @classmethod
    async def open(
        cls,
        hosts: Sequence[Host],
        settings: FleetSettings | None = None,
        *,
        placement: Placement | None = None,
        owner: str = "",
        seed: int | None = None,
    ) -> Fleet:
        """Raises Unsupported where no host can be reached; those that can't be are left out."""
        settings = settings or FleetSettings()
        fleet = cls(settings, placement or Placement(seed or 0), owner or secrets.token_hex(8), random.Random(seed))
        joined = await asyncio.gather(*(fleet.registry.join(host) for host in hosts), return_exceptions=True)
        for error in joined:
            if isinstance(error, BaseException) and not isinstance(error, InfraError):
                raise error
        if not any(error is None for error in joined):
            raise Unsupported(f"none of {len(hosts)} hosts answers: {joined[0] if joined else 'there are none'}")
        if settings.warm:
            fleet.ready.start()
        return fleet

    def probe(self) -> Capabilities:
        """What the first host can do; demands are refused by the host that is asked."""
        places = self.registry.placement.places
        first = next(iter(places.values())).facts.capabilities
        return dataclasses.replace(first, backend=f"fleet of {len(places)} x {first.backend}")

    async def create(self, spec: SandboxSpec, *, key: str | None = None) -> Sandbox:
        self._require_open()
        if key is None:
            return await self._create(spec)
        return await self._keys.once(key, lambda: self._create(spec))

    async def restore(
        self, snapshot: SnapshotRef, spec: SandboxSpec, n: int = 1
    ) -> builtins.list[Sandbox | SandboxError]:
        """Who no longer waits gets none: those that were born are ended."""
        self._require_open()
        if not 1 <= n <= _MOST:
            raise UserError(f"restore of {n} sandboxes: from 1 to {_MOST} at once")

        async def one() -> Sandbox | SandboxError:
            try:
                return await self._creation.spawn(spec, snapshot)
            except SandboxError as error:
                return error

        tasks = [asyncio.ensure_future(one()) for _ in range(n)]
        try:
            return builtins.list(await asyncio.gather(*tasks))
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            boxes = [box for box in done if not isinstance(box, BaseException)]
            await asyncio.gather(*(box.kill() for box in boxes), return_exceptions=True)
            raise

    async def remember(self, box: FleetSandbox, ref: SnapshotRef) -> None:
        """Where a snapshot's layers are, so that its forks are made on the same host."""
        chain = await self.registry.members[box.host].host.chain(ref.digest)
        self.shipping.remember(ref.digest, chain, box.host)

    async def bring(self, box: FleetSandbox, ref: SnapshotRef) -> None:
        await self.shipping.bring(self.registry.members[box.host], "", await self.shipping.chain(ref.digest))

    def list(self, labels: dict[str, str] | None = None) -> builtins.list[Sandbox]:
        wanted, idle = (labels or {}).items(), {id(box) for box in self.ready.held()}
        boxes = (box for member in self.registry.members.values() for box in member.boxes.values())
        return [box for box in boxes if wanted <= box.spec.labels.items() and id(box) not in idle]

    async def reap(self) -> builtins.list[str]:
        """Ends what the hosts hold of ours and is unknown here. Heartbeats do the same."""
        members = builtins.list(self.registry.members.values())
        swept = await asyncio.gather(*(self.registry.sweep(member) for member in members), return_exceptions=True)
        return [
            f"{member.host.name}/{name}"
            for member, found in zip(members, swept, strict=True)
            if isinstance(found, builtins.list)
            for name in found
        ]

    def stats(self) -> PoolStats:
        members, facts = self.registry.members.values(), [one.facts for one in self.registry.placement.places.values()]
        return PoolStats(
            live=sum(len(member.boxes) for member in members),
            running=sum(member.running for member in members),
            waiting=self._creation.waiting,
            created=self._creation.done,
            max_live=sum(one.max_live for one in facts),
            max_running=sum(one.max_running for one in facts),
        )

    async def close(self) -> None:
        """Ends all of ours on every host; hosts that were not opened for us stay, and may serve others."""
        if not self._closed:
            self._closed = True
            await self.ready.close()
            await self.registry.close()
            for member in self.registry.members.values():
                for box in builtins.list(member.boxes.values()):
                    box.end(died=False)
            await asyncio.gather(*(after() for after in self.after_close))

    async def _create(self, spec: SandboxSpec) -> FleetSandbox:
        claimed = await self.ready.claim(spec) if self._settings.warm else None
        return claimed or await self._creation.spawn(spec)

    def _require_open(self) -> None:
        if self._closed:
            raise SandboxNotFound("the fleet is closed")
