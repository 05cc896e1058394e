"""Several engines as one policy: a session stays with the replica that holds its keys and values; a dead one's sessions go elsewhere.

A turn in flight on a replica that dies fails as our fault (promise 8), and the attempt starts again, with the others if they live. Only
replicas that serve the admitted version may be asked: a group admitted at version v holds no token of an older one (promise 5).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from copy import copy

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion
from etude.rl.engine_policy import RemoteEnginePolicy

# Sessions that were never released (their attempt was cut off) are forgotten at last; a forgotten one costs a prefill, nothing else.
REMEMBERED = 1 << 16


class Replicas:
    """A token policy. `distance(n)`: how far replica n is from serving what it has to, 0 where it does; the nearest is asked, and a dead one
    that is asked waits for its own return. `at_hand(n)`: replica n is about to be asked."""

    name = "engine"
    takes_tokens = True

    def __init__(
        self,
        replicas: Sequence[RemoteEnginePolicy],
        distance: Callable[[int], int],
        at_hand: Callable[[int], Awaitable[None]],
    ) -> None:
        self._replicas = replicas
        self._distance = distance
        self._at_hand = at_hand
        self._home: OrderedDict[str, int] = OrderedDict()
        self._turns = [0] * len(replicas)  # asked and not answered
        self._asked = range(len(replicas))
        self.answered = [0] * len(replicas)  # turns in all

    async def complete(self, request: Request) -> Completion:
        """Raises PolicyError; ProcessLost when no replica is left."""
        number = self._place(request.session_id)
        self._turns[number] += 1
        try:
            await self._at_hand(number)
            answer = await self._replicas[number].complete(request)
            self.answered[number] += 1
            return answer
        finally:
            self._turns[number] -= 1

    def only(self, count: int) -> Replicas:
        """The same, but the first `count` replicas alone are asked."""
        few = copy(self)
        few._home, few._asked = OrderedDict(), range(count)
        return few

    def turns(self, number: int) -> int:
        """Asked of replica `number` and not answered."""
        return self._turns[number]

    async def release(self, session_id: str) -> None:
        number = self._home.pop(session_id, None)
        if number is not None and not self._distance(number):
            await self._replicas[number].release(session_id)

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.close()

    def _place(self, session_id: str) -> int:
        """Where the session's last turn was, if that one is ready; else the nearest one with the fewest turns in flight."""
        home = self._home.get(session_id)
        if home is None or self._distance(home):
            home = min(self._asked, key=lambda n: (self._distance(n), self._turns[n], n))
        self._home[session_id] = home
        self._home.move_to_end(session_id)
        while len(self._home) > REMEMBERED:
            self._home.popitem(last=False)
        return home
