"""One sandbox, from a spec to a host that has it: chosen, asked with a key of its own, asked again where that can help."""

from __future__ import annotations

import asyncio
import itertools
import random

from etude.sandbox.errors import CapacityExhausted, InfraError, SandboxNotFound
from etude.sandbox.fleet.box import FleetSandbox, Keeper
from etude.sandbox.fleet.demand import Demand
from etude.sandbox.fleet.errors import AnswerLost, HostLost
from etude.sandbox.fleet.retry import Retry
from etude.sandbox.fleet.roster import Member, Roster
from etude.sandbox.fleet.settings import FleetSettings
from etude.sandbox.fleet.shipping import Chain, Shipping
from etude.sandbox.protocol import Sandbox
from etude.sandbox.spec import SandboxSpec, SnapshotRef

_FULL_S = (
    1.0  # a full fleet asks to come back after this; a sandbox ends somewhere every few milliseconds in a large one
)
_REPEATS = 2  # of a request whose answer was lost, at the same host with the same key, before another host is asked


class Births:
    def __init__(
        self, settings: FleetSettings, roster: Roster, shipping: Shipping, keeper: Keeper, dice: random.Random
    ) -> None:
        self._roster, self._shipping, self._keeper = roster, shipping, keeper
        self._retry = Retry(settings.attempts, settings.patience_s, dice)
        self._numbers = itertools.count(1)
        self.waiting = self.done = 0

    async def bear(self, spec: SandboxSpec, snapshot: SnapshotRef | None = None) -> FleetSandbox:
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
        demand, placement = Demand.of(spec, chain[0] if chain else ()), self._roster.placement
        name = placement.choose(demand, now_s, frozenset(avoid))
        if name is None:
            raise CapacityExhausted(
                f"none of {len(self._roster.members)} hosts has room for {demand.memory_mb} MB and {demand.cpus} cores",
                _FULL_S,
            )
        member = self._roster.members[name]
        tether = member.tether
        placement.commit(name, demand)
        key = str(next(self._numbers))
        member.pending.add(key)
        try:
            if wait_s := placement.places[name].bucket.reserve(now_s):
                await asyncio.sleep(wait_s)
            inner = await tether.hold(self._ask(member, spec, snapshot, chain, key))
        except BaseException as error:
            if tether.why is None:  # else all its promises are void
                placement.release(name, demand)
            avoid.add(name)
            self._blame(member, error, lost=tether.why is not None)
            raise
        finally:
            member.pending.discard(key)
        box = FleetSandbox(name, key, spec, inner, tether, asyncio.get_running_loop().time(), self._keeper)
        self._roster.keep(member, box, demand)
        self.done += 1
        return box

    async def _ask(
        self, member: Member, spec: SandboxSpec, snapshot: SnapshotRef | None, chain: Chain | None, key: str
    ) -> Sandbox:
        if chain:
            await self._shipping.bring(member, "" if snapshot else spec.snapshot or spec.image, chain)
        owner = self._roster.owner
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
        """What says something about the host: not that it is full, refuses, or lacks what nobody has."""
        if isinstance(error, HostLost):
            if not lost:
                self._roster.lose(member, str(error))
        elif (
            isinstance(error, InfraError)
            and error.retryable
            and not isinstance(error, CapacityExhausted | SandboxNotFound)
        ):
            self._roster.fault(member)
