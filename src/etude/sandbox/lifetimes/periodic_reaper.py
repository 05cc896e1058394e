"""Runs a pool's reaper when the pool opens, every half minute, and on request."""

from __future__ import annotations

import asyncio
import logging

from etude.sandbox.cleanup.ledger import CleanupLedger
from etude.sandbox.cleanup.reaper import Reaper, ReapResult

EVERY_S = 30.0  # half a lease (`ledger.journal`)


class PeriodicReaper:
    """In a thread, since what it kills takes its time to die; one round at a time."""

    def __init__(self, ledger: CleanupLedger, every_s: float = EVERY_S) -> None:
        self._reaper, self._every_s = Reaper(ledger), every_s
        self._loop = asyncio.get_running_loop()
        self._one_at_a_time = asyncio.Lock()
        self._round: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._round = self._loop.create_task(self._go_round())

    async def reap(self) -> list[ReapResult]:
        async with self._one_at_a_time:
            return await asyncio.to_thread(self._reaper.reap)

    async def close(self) -> None:
        """A round that is under way is waited for: a half of it would be done twice."""
        if self._timer is not None:
            self._timer.cancel()
        if self._round is not None:
            await self._round

    async def _go_round(self) -> None:
        try:
            await self.reap()
        except OSError as error:
            logging.warning("the ledger can't be read (%s); tried again in %g s", error, self._every_s)
        self._timer = self._loop.call_later(self._every_s, self.start)


def describe(reaped: ReapResult) -> str:
    """For people."""
    what = f"{reaped.kind} {reaped.id} of {reaped.owner}"
    return f"{what}: still there, {reaped.stuck}" if reaped.stuck else what
