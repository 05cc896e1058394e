"""A link within one process. It can be slow, lose answers or break, as a network does, on demand and from a seed."""

from __future__ import annotations

import asyncio
import pickle
import random
from typing import Any

from etude.sandbox.fleet.errors import AnswerLost, HostLost
from etude.sandbox.fleet.wire.link import Answer
from etude.sandbox.fleet.wire.server import HostServer


class LoopLink:
    """`copying`: values travel as bytes, as they would over a network. `lost`: the share of requests whose answer doesn't come back."""

    def __init__(
        self, server: HostServer, *, delay_s: float = 0.0, lost: float = 0.0, seed: int = 0, copying: bool = True
    ) -> None:
        self._server, self._delay_s, self._lost, self._copying = server, delay_s, lost, copying
        self._dice = random.Random(seed)
        self.broken = False  # refuses, as a dead process does
        self.silent = False  # answers nothing, as a dead machine does
        self.lose_next = 0  # how many answers to the next requests

    async def ask(self, method: str, *args: Any, **named: Any) -> Answer:
        if self.broken:
            raise HostLost("the other end is gone")
        await self._silence()
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._copying:
            args, named = pickle.loads(pickle.dumps((args, named)))
        answer = await self._server.ask(method, *args, **named)
        await self._silence()
        if self.lose_next or (self._lost and self._dice.random() < self._lost):
            self.lose_next = max(0, self.lose_next - 1)
            raise AnswerLost(f"the answer to {method} was lost")
        if self.broken:
            raise HostLost("the other end is gone")
        return pickle.loads(pickle.dumps(answer)) if self._copying else answer

    async def _silence(self) -> None:
        if self.silent:
            await asyncio.get_running_loop().create_future()  # until the asker's patience ends

    async def close(self) -> None:
        self._server.close()
