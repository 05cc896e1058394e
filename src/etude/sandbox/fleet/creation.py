"""One sandbox, from a spec to a host that has it: chosen, asked with a key of its own, asked again where that can help."""

from __future__ import annotations

import asyncio
import itertools
import random

from etude.sandbox.errors import CapacityExhausted, InfraError, SandboxNotFound
from etude.sandbox.fleet.box import FleetOperations, FleetSandbox
from etude.sandbox.fleet.demand import Demand
from etude.sandbox.fleet.errors import AnswerLost, HostLost
from etude.sandbox.fleet.hosts import HostRegistry, Member
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.shipping import Chain, Shipping
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec, SnapshotRef

_FULL_S = (
    1.0  # a full fleet asks to come back after this; a sandbox ends somewhere every few milliseconds in a large one
)
_REPEATS = 2  # of a request whose answer was lost, at the same host with the same key, before another host is asked


FIRST_S, LONGEST_S = 0.1, 10.0


class Retry:
    """Which failures are retried, and when. Pure except for the seeded random numbers.

    Only infrastructure errors that say so (`InfraError.retryable`) are retried. An error of the caller or of the inside would only
    repeat, and a retry would hide it.
    """

    def __init__(self, attempts: int, patience_s: float, rng: random.Random) -> None:
        self._attempts, self._patience_s, self._rng = attempts, patience_s, rng

    def after(self, error: Exception, attempt: int, spent_s: float) -> float | None:
        """Seconds until the next attempt after the `attempt`-th, from 1, failed; None: give up.

        A full fleet is waited for with patience, however often it says so; faults are tried a number of times. Full jitter, so that
        what failed together does not come back together.
        """
        if not isinstance(error, InfraError) or not error.retryable or spent_s >= self._patience_s:
            return None
        if isinstance(error, CapacityExhausted):
            return error.retry_after_s * (0.5 + self._rng.random())
        if attempt >= self._attempts:
            return None
        return self._rng.random() * min(LONGEST_S, FIRST_S * 2**attempt)


class FleetCreation:
    def __init__(
        self,
        settings: FleetSettings,
        registry: HostRegistry,
        shipping: Shipping,
        fleet: FleetOperations,
        rng: random.Random,
    ) -> None:
        self._registry, self._shipping, self._fleet = registry, shipping, fleet
        self._retry = Retry(settings.attempts, settings.patience_s, rng)
        self._numbers = itertools.count(1)
        self.waiting = self.done = 0

    async def spawn(self, spec: SandboxSpec, snapshot: SnapshotRef | None = None) -> FleetSandbox:
        """Raises what can't be cured by another attempt, or the last attempt's error."""
        loop = asyncio.get_running_loop()
        start_s, faults, avoid = loop.time(), 0, set[str]()
        called = snapshot.digest if snapshot else spec.snapshot or spec.image
        self.waiting += 1
        try:
            chain = await self._shipping.chain(called) if called else None
            while True:
                try:
                    return await self._attempt(spec, snapshot, chain, avoid)
                except InfraError as error:
                    faults += not isinstance(error, CapacityExhausted)
                    wait_s = self._retry.after(error, faults, loop.time() - start_s)
                    if wait_s is None:
                        raise
                    await asyncio.sleep(wait_s)
        finally:
            self.waiting -= 1

    async def _attempt(
        self, spec: SandboxSpec, snapshot: SnapshotRef | None, chain: Chain | None, avoid: set[str]
    ) -> FleetSandbox:
        """Hosts that failed are entered in `avoid`."""
        now_s = asyncio.get_running_loop().time()
        demand, placement = Demand.of(spec, chain[0] if chain else ()), self._registry.placement
        name = placement.choose(demand, now_s, frozenset(avoid))
        if name is None:
            raise CapacityExhausted(
                f"none of {len(self._registry.members)} hosts has room for {demand.memory_mb} MB and {demand.cpus} cores",
                _FULL_S,
            )
        member = self._registry.members[name]
        operations = member.operations
        placement.commit(name, demand)
        key = str(next(self._numbers))
        member.pending.add(key)
        try:
            if wait_s := placement.places[name].bucket.reserve(now_s):
                await asyncio.sleep(wait_s)
            inner = await operations.hold(self._ask(member, spec, snapshot, chain, key))
        except BaseException as error:
            if operations.why is None:  # else all its promises are void
                placement.release(name, demand)
            avoid.add(name)
            self._blame(member, error, lost=operations.why is not None)
            raise
        finally:
            member.pending.discard(key)
        box = FleetSandbox(name, key, spec, inner, operations, asyncio.get_running_loop().time(), self._fleet)
        self._registry.keep(member, box, demand)
        self.done += 1
        return box

    async def _ask(
        self, member: Member, spec: SandboxSpec, snapshot: SnapshotRef | None, chain: Chain | None, key: str
    ) -> Sandbox:
        if chain:
            await self._shipping.bring(member, "" if snapshot else spec.snapshot or spec.image, chain)
        owner = self._registry.owner
        for left in range(_REPEATS, -1, -1):
            try:
                if snapshot is None:
                    return await member.host.create(spec, owner, key)
                return await member.host.restore(snapshot, spec, owner, key)
            except AnswerLost:
                if not left:
                    raise
        raise AssertionError("unreachable")

    def _blame(self, member: Member, error: BaseException, lost: bool) -> None:
        """What says something about the host: not that it is full, refuses, or lacks what every host lacks."""
        if isinstance(error, HostLost):
            if not lost:
                self._registry.lose(member, str(error))
        elif (
            isinstance(error, InfraError)
            and error.retryable
            and not isinstance(error, CapacityExhausted | SandboxNotFound)
        ):
            self._registry.fault(member)
