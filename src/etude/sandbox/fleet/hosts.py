"""The hosts of a fleet and how they fare: heartbeats, leases, breakers. Who drains a host, and who tells its sandboxes that it is lost.

A *sick* host (its breaker is open) takes nothing new; what lives there goes on. A *lost* one (its lease is over, or its process gone) took
its sandboxes along: each fails with HostLost, at once and for good. Should it come back, what it still holds of ours is ended there.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from etude.sandbox.errors import InfraError, SandboxError
from etude.sandbox.fleet.box import FleetSandbox
from etude.sandbox.fleet.demand import Demand, Heartbeat
from etude.sandbox.fleet.errors import AnswerLost, HostLost
from etude.sandbox.fleet.host import Host
from etude.sandbox.fleet.placement import Placement
from etude.sandbox.operation_scope import OperationScope
from etude.sandbox.spec import SandboxSpec

# Who is alive: a host that hasn't been heard of for LEASE_S is lost. Pure: every method takes the (monotonic) time.


HEARTBEAT_S = 10.0
LEASE_S = 60.0  # six heartbeats: a machine that swaps for half a minute keeps its sandboxes


class Leases:
    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def renew(self, host: str, now_s: float) -> None:
        self._until_s[host] = now_s + LEASE_S

    def end(self, host: str) -> None:
        self._until_s.pop(host, None)

    def over(self, host: str, now_s: float) -> bool:
        """False for a host that has none: it is not ours to lose."""
        return now_s >= self._until_s.get(host, now_s + 1)


FAULTS = 3


WINDOW_S = 60.0


REST_S = 30.0


LONGEST_REST_S = 480.0  # a machine mended by hand is back within eight minutes


BreakerState = Literal["closed", "open", "half-open"]


class HostBreaker:
    """Circuit breaker of one host: whether it may get new sandboxes, by its faults. Pure: every method gets the time.

    closed     takes sandboxes      --- FAULTS faults within WINDOW_S ---> open
    open       takes nothing new    --- its rest ends ---> half-open
    half-open  makes one sandbox    --- success ---> closed;  fault ---> open, with twice the rest
    """

    def __init__(self) -> None:
        self._faults: deque[float] = deque(maxlen=FAULTS)
        self._open_until_s: float | None = None
        self._rest_s = REST_S

    def state(self, now_s: float) -> BreakerState:
        if self._open_until_s is None:
            return "closed"
        return "open" if now_s < self._open_until_s else "half-open"

    def fault(self, now_s: float) -> bool:
        """Counts one; true where this one opens it."""
        was = self.state(now_s)
        if was == "half-open":
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
        self._faults.append(now_s)
        enough = len(self._faults) == FAULTS and now_s - self._faults[0] <= WINDOW_S
        if was == "open" or (was == "closed" and not enough):
            return False
        self._open_until_s = now_s + self._rest_s
        return True

    def trip(self, now_s: float) -> None:
        """Open at once: the host is lost."""
        self._open_until_s = now_s + self._rest_s

    def success(self, now_s: float) -> None:
        """A try that worked. Only a half-open one learns from it: a closed one keeps counting within its window."""
        if self.state(now_s) == "half-open":
            self._open_until_s, self._rest_s = None, REST_S
            self._faults.clear()


@dataclass
class Member:
    """One host. `boxes` by key; `pending`: keys of creates on their way; `running`: commands, by its last heartbeat."""

    host: Host
    breaker: HostBreaker = field(default_factory=HostBreaker)
    operations: OperationScope = field(default_factory=OperationScope)
    boxes: dict[str, FleetSandbox] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    running: int = 0


class HostRegistry:
    def __init__(self, owner: str, placement: Placement, rng: random.Random) -> None:
        self.owner, self.placement = owner, placement
        self.members: dict[str, Member] = {}
        self._leases, self._rng = Leases(), rng
        self._watches: list[asyncio.Task[None]] = []
        self._tries = 0

    async def join(self, host: Host) -> None:
        """Raises what the host raises if it can't say what it has; once it has, its lease runs."""
        try:
            facts = await host.facts()
        except AnswerLost:
            facts = await host.facts()
        self.placement.join(host.name, facts)
        member = self.members[host.name] = Member(host)
        self._leases.renew(host.name, _now())
        self._watches.append(asyncio.create_task(self._watch(member)))

    def fault(self, member: Member) -> None:
        """An infra fault of this host; the third within a minute drains it."""
        if member.breaker.fault(_now()):
            self.placement.close(member.host.name)

    def lose(self, member: Member, why: str) -> None:
        """Idempotent while it stays lost. Everything that waits on it fails now."""
        name, boxes = member.host.name, list(member.boxes.values())
        self._leases.end(name)
        member.breaker.trip(_now())
        self.placement.leave(name)
        old, member.operations = member.operations, OperationScope()
        member.boxes.clear()
        old.fail(lambda: HostLost(f"host {name} is lost: {why}"))
        for box in boxes:
            box.end(died=True)

    def keep(self, member: Member, box: FleetSandbox, demand: Demand) -> None:
        """Counted until its end."""
        member.boxes[box.key] = box
        box.on_end = lambda died: self._ended(member, box, demand, died)

    async def sweep(self, member: Member) -> list[str]:
        """End on the host what is ours and unknown here (an answer lost, a host that came back); ids of what went."""
        beat = await member.host.beat(self.owner)
        gone = [key for key in beat.live if key not in member.boxes and key not in member.pending]
        await asyncio.gather(*(member.host.end(self.owner, key) for key in gone))
        return [beat.live[key] for key in gone if beat.live[key]]

    async def close(self) -> None:
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await asyncio.gather(*(self._leave(member) for member in self.members.values()))

    def _ended(self, member: Member, box: FleetSandbox, demand: Demand, died: bool) -> None:
        if member.boxes.pop(box.key, None) is None:
            return  # with its host, whose promises are all void already
        self.placement.release(member.host.name, demand)
        if died:
            self.fault(member)

    async def _leave(self, member: Member) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await member.host.leave(self.owner)
        except (TimeoutError, InfraError):
            return  # a host that can't be reached ends our sandboxes when our lease there is over

    async def _watch(self, member: Member) -> None:
        # Spread over the interval: five hundred hosts that joined together shall not answer together. The first one is at once: what
        # layers a host has is wanted before the first create.
        spread_s = self._rng.random() * HEARTBEAT_S
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT_S):
                    await self._beat(member)
            except HostLost as error:
                self.lose(member, str(error))
            except (TimeoutError, InfraError):
                if self._leases.over(member.host.name, _now()):
                    self.lose(member, "its lease is over, no heartbeat came")
            else:
                await self._try(member)
            await asyncio.sleep(spread_s or HEARTBEAT_S)
            spread_s = 0.0

    async def _beat(self, member: Member) -> None:
        asked_s = _now()
        beat = await member.host.beat(self.owner)
        self._leases.renew(member.host.name, _now())
        self.placement.learn(member.host.name, beat)
        member.running = beat.running
        await self._compare(member, beat, asked_s)

    async def _compare(self, member: Member, beat: Heartbeat, asked_s: float) -> None:
        """What we hold and what is there, from before the question: ended by time there, or unknown here."""
        for key, box in list(member.boxes.items()):
            if key not in beat.live and box.created_s < asked_s:
                box.end(died=False)
        strays = [key for key in beat.live if key not in member.boxes and key not in member.pending]
        for key in strays:
            await member.host.end(self.owner, key)

    async def _try(self, member: Member) -> None:
        """A drained host that has rested makes one trial sandbox before a caller's is put there again."""
        name = member.host.name
        if self.placement.takes(name) or member.breaker.state(_now()) != "half-open":
            return
        self._tries += 1
        key = f"try-{self._tries}"
        member.pending.add(key)
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                box = await member.host.create(SandboxSpec(), self.owner, key)
                await box.run(["true"])
                await member.host.end(self.owner, key)
        except (TimeoutError, SandboxError):
            member.breaker.fault(_now())
        else:
            member.breaker.success(_now())
            self.placement.open(name)
        finally:
            member.pending.discard(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
