"""The trainer's ranks as one process: they train together, and die together.

A rank that dies leaves the others waiting for it, and a batch half summed; so with the first death or silence all ranks end, and the
trainer's next incarnation begins with all of them, from the last checkpoint (`services.py`). What only one may do (publish, save, export)
rank 0 does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from etude.learn.train.gloo_ranks import Rendezvous
from etude.learn.train.ranks import RankLost
from etude.rl.restarts import ProcessDied

# What all ranks have to do, at the same time. Everything else is rank 0's.
TOGETHER = frozenset({"restore", "train"})


class RankGroup:
    """A handle like that of one process: `await group.method(...)` raises ProcessDied when a rank is gone. `ranks`: handles, rank 0 first."""

    def __init__(self, ranks: Sequence[Any], meeting: Rendezvous) -> None:
        self._ranks = ranks
        self._meeting = meeting  # held for as long as the ranks live
        self._dead = ""

    @classmethod
    def start(cls, size: int, start: Callable[[int, str], Any], host: str) -> RankGroup:
        """`start` gives the handle of one rank, which is to meet the others at that address of this host."""
        meeting = Rendezvous(host)
        return cls([start(rank, meeting.address) for rank in range(size)], meeting)

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            if self._dead:
                raise ProcessDied(self._dead)
            asked = self._ranks if method in TOGETHER else self._ranks[:1]
            return await self._all([getattr(rank, method)(*arguments) for rank in asked])

        return call

    def kill(self) -> None:
        """End all ranks, whatever they do."""
        self._dead = self._dead or "its ranks were ended"
        for rank in self._ranks:
            rank.kill()

    async def _all(self, calls: list[Awaitable[Any]]) -> Any:
        """Rank 0's answer when all have answered. The first failure ends the others: they wait for one that won't come."""
        tasks = [asyncio.ensure_future(call) for call in calls]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            failures = [(n, task.exception()) for n, task in enumerate(tasks) if task.done() and task.exception()]
            if not failures:
                return tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
        # A rank that went wrong by itself tells more than those that missed it.
        number, error = next(((n, e) for n, e in failures if not isinstance(e, RankLost | ProcessDied)), failures[0])
        assert error is not None
        self._dead = f"rank {number}: {error}"
        self.kill()
        if isinstance(error, RankLost | ProcessDied):
            raise ProcessDied(self._dead) from error
        raise error
