"""Engines of regions: each follows its region's own store at the pace of its link, and nothing waits for one that is away.

One step of following: it stages the newest version of its store while it works, swaps between two steps, and the floor is computed
again (below, promise 5). The trainer receives the version, so that deltas may start from what it holds; one without news for
`patience_s` while it is behind leaves the chain's receivers, so that the base goes on without it (promise 7), and joins again with its next
version, to which an anchor in its store and the deltas behind it lead. One that gives no sign of life for as long is asked nothing more, and its
turns in flight are given up: they fail as our fault, and their attempts start again elsewhere (promise 8). Its process is begun again as often as it
takes, with growing pauses: a region that can't be reached is no broken engine, and the run does not rest on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from etude.learn.weights.errors import BadStore, ForeignFormat, Unreachable, WeightsError
from etude.rl.observer import RunObserver
from etude.rl.restarts import ProcessDied

if TYPE_CHECKING:
    from etude.rl.engines import Replica


# The floor: the version at which groups are admitted, and which every engine that is asked serves at least (promise
# 5). Pure.
#
# Engines next to the trainer serve each version as soon as it is out: `home`. Those of a region follow at the pace of
# its link. While they are at most `lag` versions behind, the floor waits for them. A region that is further behind is
# *away*, and nothing waits for it:
#
#     near  = the versions served in regions that are at least home - lag
#     floor = the greatest so far of  min(home, *near)
#
# Promise 5 follows from three facts: a group is admitted at the floor of that moment; the floor never falls; a turn
# is asked of an engine that serves the floor of its own moment or a later version. So no turn of a group admitted at
# v is sampled with weights older than v, and the bound on the age of v (the staleness window) bounds the age of every
# token. What a region that keeps up costs is `home - floor` versions of the bound, at most `lag`; one that is away
# costs nothing.
#
# A region comes back although training never waits: it has to be within `lag` of home, not at home's own version.
# Once it is, the floor stays where it is until the region has passed it, and the region is asked again.
#
# Worked example, lag 2: home 7, a region at 6, floor 6. The link is lost; home 8, floor 6 (6 >= 8 - 2). Home 9: 6 is
# too old, the floor is 9, and goes with home. The link is back, and at home 12 (floor 12) the region has fetched 11:
# it is near again. Home 13: the floor stays 12, for 11 is waited for. With its next fetch the region serves 13, which
# is above the floor, and answers again.


class VersionFloor:
    """`version` is the floor; -1 before anything is served."""

    def __init__(self, lag: int) -> None:
        self.lag = lag
        self.home = -1
        self.version = -1

    def rise(self, home: int, regional: Iterable[int] = ()) -> bool:
        """All engines at home serve `home`, those of regions these; whether the floor is a higher one now."""
        self.home = max(self.home, home)
        before = self.version
        self.version = max(before, min([self.home, *(served for served in regional if self.near(served))]))
        return self.version > before

    def near(self, served: int) -> bool:
        """Whether who serves this is waited for."""
        return served >= max(0, self.home - self.lag)


# Between two looks at a store that has nothing new: a request to a server nearby.
LOOK_S = 0.25


class Regions:
    """Of some replicas, those of regions. `begin`, then they come by themselves; `risen` hears of every new floor."""

    def __init__(
        self,
        replicas: Sequence[Replica],
        floor: VersionFloor,
        ask_trainer: Callable[..., Awaitable[Any]],
        patience_s: float,
        observer: RunObserver,
    ) -> None:
        self.replicas, self.floor = replicas, floor
        self.risen: Callable[[], None] = lambda: None
        self._ask, self._patience_s, self._observer = ask_trainer, patience_s, observer
        self._tasks: list[asyncio.Task[None]] = []
        self._healed_at = -1
        self._reasons: dict[int, str] = {}  # by replica: why it gets nothing

    def begin(self) -> None:
        """Their processes start, and follow from then on."""
        if self._tasks or not self.replicas:
            return
        self._tasks = [asyncio.create_task(self._life(one)) for one in self.replicas]
        self._tasks.append(asyncio.create_task(self._part_with_late()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def rise(self, home: int | None = None) -> None:
        """Somebody serves a newer version."""
        if self.floor.rise(self.floor.home if home is None else home, (one.served for one in self.replicas)):
            self.risen()

    def ready(self, one: Replica) -> bool:
        """Whether it may be asked."""
        return one.up and not one.draining and not one.silent and one.served >= self.floor.version

    def look_within(self, silence_s: float) -> float:
        """In what time a sign of life is wanted of engines that others end after `silence_s`."""
        return min(silence_s, self._patience_s)

    def check(self) -> None:
        """Raises what went wrong with following, if anything did."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    def figures(self, answered: Sequence[int]) -> dict[str, float]:
        """Of each region how many versions its best engine is behind home, how many of its engines are away, and how many turns they have
        `answered` in this life of the run."""
        found: dict[str, float] = {}
        for name in dict.fromkeys(one.region for one in self.replicas):
            mine = [one for one in self.replicas if one.region == name]
            found[f"region_{name}_behind"] = float(self.floor.home - max(one.served for one in mine))
            found[f"region_{name}_away"] = float(sum(not self.ready(one) for one in mine))
            found[f"region_{name}_turns"] = float(sum(answered[one.number] for one in mine))
        return found

    async def come(self, one: Replica, handle: Any) -> None:
        """A new process of it: returns when it may be asked. Raises ProcessDied."""
        while not (one.served >= 0 and one.served >= self.floor.version):
            if not await self._step(one, handle):
                await asyncio.sleep(LOOK_S)
        one.heard_s, one.silent = asyncio.get_running_loop().time(), False

    async def _life(self, one: Replica) -> None:
        await one.lifeline.start()
        self._tell_back(one)
        while True:
            generation = one.lifeline.generation
            try:
                news = one.up and await self._step(one, one.lifeline.handle)
            except ProcessDied as death:
                one.client.bring_back(generation, str(death))
                news = False
            self._tell_back(one)
            if not news:
                await asyncio.sleep(LOOK_S)

    async def _step(self, one: Replica, handle: Any) -> bool:
        """To the newest version of its store; whether that was news. A fault of the store is reported once."""
        try:
            if await handle.stage() <= one.served:
                return False
            one.served = await handle.apply()
        except WeightsError as error:
            await self._refused(one, error)
            return False
        one.news_s = asyncio.get_running_loop().time()
        self._reasons.pop(one.number, None)
        self.rise()
        if not one.listens:
            one.listens = True
            await self._ask("join", one.receiver, None)
        await self._ask("acknowledge", one.receiver, one.served)
        return True

    async def _refused(self, one: Replica, error: WeightsError) -> None:
        """A chain that is broken in the region may be healed by the next anchor, which is asked for once for a version."""
        reason = f"{type(error).__name__}: {error}"
        if self._reasons.get(one.number) != reason:
            self._reasons[one.number] = reason
            self._observer.note(f"the {one.lifeline.name} gets no weights from its store and waits: {reason}")
        if not isinstance(error, BadStore | ForeignFormat | Unreachable) and self._healed_at < self.floor.home:
            self._healed_at = self.floor.home
            await self._ask("heal")

    def _tell_back(self, one: Replica) -> None:
        if one.away and self.ready(one):
            one.away = False
            self._observer.note(
                f"the {one.lifeline.name} is back with version {one.served}; home serves {self.floor.home}"
            )

    async def _part_with_late(self) -> None:
        """Stop waiting for a replica that reports no news although a newer version exists."""
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(min(1.0, self._patience_s / 4))
            for one in self.replicas:
                if one.served >= self.floor.home:
                    one.news_s = clock()
                if one.up and not one.silent and clock() - one.heard_s > self._patience_s:
                    one.silent = True
                    one.client.give_up(f"the {one.lifeline.name} has been silent for {self._patience_s:g} s")
                if one.lifeline.begun and not one.away and not self.ready(one):
                    one.away = True
                    self._observer.note(
                        f"the {one.lifeline.name} is away: it has version {one.served}, home serves {self.floor.home}"
                    )
                if one.listens and clock() - one.news_s > self._patience_s:
                    one.listens = False
                    await self._ask("leave", one.receiver)


def listening(replicas: Iterable[Replica]) -> list[tuple[str, int]]:
    """Who is a receiver of the chain, and what each serves."""
    return [(one.receiver, one.served) for one in replicas if one.receiver is not None and one.listens and not one.lent]
