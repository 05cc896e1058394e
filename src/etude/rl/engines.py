"""The engine's replicas: started, kept alive, and brought to each new version of the weights (promise 7).

The weights' way to each: it fetches and checks while it works (`stage`), swaps between two of its steps (`apply`), and the trainer
receives the version, so that a delta may start from it. A version counts as served once every replica that lives has it; one that is being brought
back starts with the newest, and may be asked only when it has what the others serve. A replica that died too often is given up
while others live; the last one's loss ends the run. One that lives and hangs is found by asking: a reading is taken between two of its
steps, and a replica that gives none for `silence_s` is ended and brought back.

Of those that are ready the `count` longest up serve, the others stand by: loaded and at the newest weights. So when one dies or is lent,
another answers at once, and the dead one's successor is the next to stand by.

All this is about the engines at home, next to the trainer. Those of regions follow at their own pace (`regions.py`); a version is served
when home serves it, and what groups are admitted at is the floor (`regions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from etude.learn.weights.errors import BadStore, ForeignFormat, WeightsError
from etude.rl.engine_policy import RemoteEnginePolicy
from etude.rl.observer import RunObserver
from etude.rl.regions import Regions, VersionFloor, listening
from etude.rl.replicas import Replicas
from etude.rl.restarts import Lifeline, ProcessDied, ProcessPlacer
from etude.rl.settings import RlSettings

AskTrainer = Callable[..., Awaitable[Any]]
TELL_S = 10.0  # a longer wait is reported
DRAIN_LOOK_S = 0.05
LOOKS = 4  # within the time of silence that is one too many
LOADING = 10  # times that: what an engine may take until it answers first
# Of a replica: who is asked sooner. One that comes back is waited for before a loan is ended.
# One of a region that is not ready is asked for want of any other alone.
READY, STANDBY, COMING, LENT, AWAY, LOST = range(6)
SUMMED = ("tokens_per_s",)  # of the replicas' readings; all others are means


class Replica:
    """One engine: its process, however often that is restarted, and what it serves."""

    def __init__(self, number: int, lifeline: Lifeline[Any], region: str = "") -> None:
        self.number = number
        self.region = region  # empty: at home
        self.listens = not region  # is a receiver of the chain
        self.news_s = 0.0  # of a region: when it last came to a new version, or had the newest
        self.heard_s = 0.0  # of a region: when it last gave a sign of life
        self.silent = False  # of a region: that is too long ago
        self.away = False  # of a region: it was said that it is
        self.lifeline = lifeline
        self.client = RemoteEnginePolicy(lifeline)
        self.receiver: str | None = None  # its name with the trainer, one for each life
        self.served = -1
        self.since = 0  # how many lives of any had begun to serve before this one
        self.lent = False  # to an evaluation, at the version that it serves
        self.returning = asyncio.Lock()
        self.draining = False  # to be replaced when its turns in flight have ended
        self.held = 0  # turns that wait for that

    @property
    def up(self) -> bool:
        return self.lifeline.begun and self.client.revival is None and self.client.lost is None


class Engines:
    """`start`, then `serve` each version; `policy` answers from then on."""

    def __init__(
        self,
        settings: RlSettings,
        places: ProcessPlacer,
        ask_trainer: AskTrainer,
        observer: RunObserver,
    ) -> None:
        """`rl.engines` and `rl.standbys` at home, and the number that `rl.regions` gives in each region."""
        self._count = count = settings.engines
        self._lives = 0
        self._places, self._ask, self._observer = places, ask_trainer, observer
        self._silence_s = settings.engine_silence_s
        self._watches: list[asyncio.Task[None]] = []
        self._early: list[Any] = []
        self._published = -1
        self._served = -1  # by all that live
        self.floor = VersionFloor(settings.region_lag)
        self.home: list[Replica] = []
        for number in range(count + settings.standbys):
            name = "engine" if count + settings.standbys == 1 else f"engine {number}"
            line = Lifeline(name, partial(self._spawn, number), settings.max_restarts, observer)
            self.home.append(Replica(number, line))
        far: list[Replica] = []
        for region, place in [(name, n) for name, one in settings.regions.items() for n in range(one.engines)]:
            number, name = len(self.home) + len(far), f"engine {place} of region {region}"
            far.append(Replica(number, Lifeline(name, partial(self._spawn, number), None, observer), region))
        self.regions = Regions(far, self.floor, ask_trainer, settings.region_patience_s, observer)
        self.replicas = [*self.home, *far]
        self.policy = Replicas([one.client for one in self.replicas], self._distance, self._at_hand)
        self.newest = self.policy.only(len(self.home))  # answers with the version that was served last, always

    @property
    def restarts(self) -> int:
        return sum(one.lifeline.restarts for one in self.replicas)

    def prepare(self) -> None:
        """The processes load while the trainer does."""
        self._early = [self._places.start_engine("") for _ in self.home]

    async def serve(self, version: int) -> None:
        """All at home that live serve `version`, which the trainer has published. Raises ProcessLost when none is left."""
        self._published = version
        fresh = [one for one in self.home if one.lifeline.generation < 0]
        await asyncio.gather(*(one.lifeline.start() for one in fresh))
        while behind := [one for one in self.home if one.up and not one.lent and one.served < version]:
            await asyncio.gather(*(self._bring(one, version) for one in behind))
        while not any(one.up and not one.lent and one.served >= version for one in self.home):
            await self._someone_back()
        await self._part_with_lost()
        self._served = version
        self.regions.rise(version)
        self.regions.check()
        self.regions.begin()

    async def lend(self) -> Replica | None:
        """A replica that an evaluation may have to itself, at the version that it serves; None where the run has none to spare. Turns in
        flight there end there, new ones go to the others, and the weights that come meanwhile pass it by."""
        spare = sorted(self._ready(), key=lambda one: one.since)
        if len(spare) < 2:
            return None
        one = min(spare[self._count :] or spare, key=lambda one: self.policy.turns(one.number))
        one.lent = True
        await self._ask("leave", one.receiver)
        return one

    async def take_back(self, one: Replica) -> None:
        """The loan is over: it loads the newest weights and serves the run again. Nothing happens where it has been called back."""
        async with one.returning:
            if not one.lent:
                return
            name = one.receiver
            if one.up:
                await self._ask("join", name, None)
            while one.up and one.lent and one.served < self._published:
                await self._bring(one, self._published)
            if one.receiver != name:  # it died meanwhile and goes by another one
                await self._ask("leave", name)
            one.lent = False

    async def renew(self, one: Replica, drain_s: float, undo: Callable[[str], None]) -> None:
        """Ends it and starts it again, once its turns in flight have ended; new ones go to the others meanwhile, or wait where there are none.
        Turns longer than `drain_s` fail as our fault. `undo` is called when the next process dies before it is ready, and another one starts."""
        while one.lent:
            await asyncio.sleep(DRAIN_LOOK_S)
        clock = asyncio.get_running_loop().time
        life, until = one.lifeline.generation, clock() + drain_s
        one.draining = True
        try:
            while self.policy.turns(one.number) > one.held and clock() < until:
                await asyncio.sleep(DRAIN_LOOK_S)
            if (
                one.up and one.lifeline.generation == life
            ):  # else it died meanwhile, and what comes back is new as it is
                one.client.replace(undo)
        finally:
            one.draining = False
        if one.client.revival is not None and not one.region:  # a region may take as long as it likes
            await asyncio.wait([one.client.revival])

    async def stats(self) -> dict[str, float]:
        """Readings of those at home that live and don't stand by: sums of what adds up, means of the rest; none is brought back for them."""
        found: list[dict[str, float]] = []
        for one in self.home:
            if self._distance(one.number) == STANDBY:
                continue
            try:
                found.append(await one.lifeline.handle.stats())
            except ProcessDied:
                continue
        names = {name for reading in found for name in reading}
        total = {name: sum(reading.get(name, 0.0) for reading in found) for name in names}
        return {name: value if name in SUMMED else value / len(found) for name, value in total.items()}

    async def close(self) -> None:
        await self.regions.close()
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        await self.policy.close()

    def receivers(self) -> list[tuple[str, int]]:
        """Who listens to the trainer, and what each serves: for a trainer that comes back."""
        return listening(self.replicas)

    def _distance(self, number: int) -> int:
        one = self.replicas[number]
        if one.client.lost is not None:
            return LOST
        if one.region:
            return READY if self.regions.ready(one) else AWAY
        if one.lent and one.up:
            return LENT
        ready = self._ready()
        if one not in ready:
            return COMING
        return READY if sum(other.since < one.since for other in ready) < self._count else STANDBY

    def _ready(self) -> list[Replica]:
        """At home: up, not lent, and at what the others serve."""
        return [one for one in self.home if one.up and not one.lent and not one.draining and one.served >= self._served]

    async def _at_hand(self, number: int) -> None:
        """It is to be asked for want of another: a loan ends with that, for it may not answer with old weights (promise 5). One that is to
        be replaced is not asked before it is."""
        one = self.replicas[number]
        await self.take_back(one)
        one.held += 1
        try:
            while one.draining:
                await asyncio.sleep(DRAIN_LOOK_S)
        finally:
            one.held -= 1

    async def _bring(self, one: Replica, version: int) -> None:
        generation = one.lifeline.generation
        try:
            one.served = await self._applied(one.lifeline.handle, version)
        except ProcessDied as death:
            one.client.bring_back(generation, str(death))  # it starts with the newest weights
            return
        await self._ask("acknowledge", one.receiver, one.served)

    async def _applied(self, handle: Any, version: int) -> int:
        """What it serves then. Where the chain can't be walked the trainer puts an anchor down first (promise 7)."""
        try:
            await handle.stage(version)
        except (BadStore, ForeignFormat):
            raise  # no anchor helps there
        except WeightsError as error:
            self._observer.note(f"version {version} can't be read ({error}): the trainer mends it by an anchor")
            await self._ask("mend", version)
            await handle.stage(version)
        return await handle.apply()

    async def _watch(self, one: Replica, handle: Any) -> None:
        """Asks this life of it for a reading now and then, and ends it for silence: a caller that waits for it then gets the error.
        The first answer may take longer, while it loads."""
        patience_s = LOADING * self._silence_s
        while True:
            try:
                async with asyncio.timeout(patience_s):  # Python 3.11's wait_for may swallow a cancellation
                    await self._reading_in_time(one, handle.stats())
            except TimeoutError:
                self._observer.note(
                    f"the {one.lifeline.name} has given no sign of life for {patience_s:g} s and is ended"
                )
                handle.kill()
                if one.up and one.lifeline.handle is handle:
                    one.client.bring_back(one.lifeline.generation, "it hung")
                return
            except ProcessDied:
                return
            patience_s = self._silence_s
            one.heard_s, one.silent = asyncio.get_running_loop().time(), False
            await asyncio.sleep((self.regions.look_within(patience_s) if one.region else patience_s) / LOOKS)

    async def _reading_in_time(self, one: Replica, reading: Awaitable[Any]) -> None:
        tell = asyncio.get_running_loop().call_later(
            TELL_S,
            self._observer.note,
            f"the {one.lifeline.name} has not answered for {TELL_S:g} s: it loads, waits for room, or hangs",
        )
        try:
            await reading
        finally:
            tell.cancel()

    async def _someone_back(self) -> None:
        """Until a replica came back, or was given up."""
        coming = [one.client.revival for one in self.home if one.client.revival is not None]
        if coming:
            await asyncio.wait(coming, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # those that wait for its end run first
            return
        if lent := [one for one in self.home if one.lent and one.up]:
            await asyncio.gather(*(self.take_back(one) for one in lent))
            return
        lost = [one.client.lost for one in self.home if one.client.lost is not None]
        raise lost[-1]

    async def _part_with_lost(self) -> None:
        """The trainer waits for them no longer."""
        for one in self.home:
            if one.client.lost is not None and one.receiver is not None:
                left = sum(other.client.lost is None for other in self.home)
                self._observer.note(f"the {one.lifeline.name} is given up, {left} go on: {one.client.lost}")
                await self._ask("leave", one.receiver)
                one.receiver = None

    async def _spawn(self, number: int, generation: int) -> Any:
        one = self.replicas[number]
        handle = self._early.pop() if self._early and not one.region else self._places.start_engine(one.region)
        self._watches = [watch for watch in self._watches if not watch.done()]
        self._watches.append(asyncio.create_task(self._watch(one, handle)))
        name, before, one.served = f"engine-{number}.{generation}", one.receiver, -1
        one.lent = False  # a loan ends with the life that was lent
        if one.region:
            if before is not None and one.listens:
                await self._ask("leave", before)
            one.receiver, one.listens = name, False
            await self.regions.come(one, handle)
            self._places.remember()
            return handle
        await self._ask("join", name, before)
        one.receiver = name
        while one.served < self._published:
            one.served = await self._applied(handle, self._published)
            await self._ask("acknowledge", name, one.served)
        self._lives += 1
        one.since = self._lives
        self._places.remember()
        return handle
