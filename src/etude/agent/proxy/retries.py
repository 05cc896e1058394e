"""A request and its repetitions: an agent's retry gets the answer of the first try, it is never sampled again.

What is taken for a repetition of a request with the same body:
- one with the same Idempotency-Key, at any time (the same key with another body is refused);
- one whose x-stainless-retry-count is above 0, as the official SDKs send it, at any time;
- any while the first is being sampled: both wait for the one sampling;
- any after an answer that could not be delivered.
Any other is a new sample of the same prompt. A failed sampling is no answer: its repetition is sampled. When all clients of a
sampling have gone it waits `grace_s` for a retry and is then cancelled.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.telling import TurnDeltas
from etude.core.trace.completion import Completion

# Answers kept for retries. An SDK tries again within seconds, and an agent has tens of requests in flight, not hundreds.
KEPT = 64

Sample = Callable[[TurnDeltas], Coroutine[Any, Any, Completion]]


@dataclass(frozen=True)
class Signs:
    """What tells a request from others: a digest of its body, and what its headers say."""

    digest: str
    key: str = ""
    retried: bool = False


@dataclass(eq=False)
class PendingAnswer:
    """One answer in the making, and how many clients wait for it."""

    number: int
    digest: str
    task: asyncio.Task[Completion]
    telling: TurnDeltas
    waiting: int = 0
    delivered: bool = False

    @property
    def failed(self) -> bool:
        """It ended without an answer."""
        return self.task.done() and (self.task.cancelled() or self.task.exception() is not None)


class Retries:
    """Of one session. `counts` says how many requests were `sampled`, `replayed`, `joined`, and samplings `cancelled`."""

    def __init__(self, grace_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self._grace_s = grace_s
        self._by_digest: OrderedDict[str, PendingAnswer] = OrderedDict()
        self._by_key: OrderedDict[str, PendingAnswer] = OrderedDict()
        self._open: set[PendingAnswer] = set()

    def join(self, signs: Signs, sample: Sample) -> PendingAnswer:
        """The sampling that answers this request, begun if need be. Every `join` is followed by a `leave`."""
        found = self._by_key.get(signs.key) if signs.key else self._by_digest.get(signs.digest)
        if found is not None and found.digest != signs.digest:
            raise ProxyRequestError(f"the Idempotency-Key {signs.key!r} was used with another body; use a new one", 422)
        if found is None or found.failed or not self._repeats(found, signs):
            found = self._begin(signs, sample)
        else:
            self.counts["replayed" if found.task.done() else "joined"] += 1
        found.waiting += 1
        return found

    def leave(self, sampling: PendingAnswer, *, delivered: bool) -> None:
        """A client has its answer, or is gone."""
        sampling.waiting -= 1
        sampling.delivered = sampling.delivered or delivered
        if not delivered and sampling.waiting == 0 and not sampling.task.done():
            asyncio.get_running_loop().call_later(self._grace_s, self._give_up, sampling)

    async def close(self) -> None:
        """Cancel what is being sampled, wait until it is over, and forget the answers."""
        left = [sampling.task for sampling in self._open]
        self.counts["cancelled"] += len(left)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        self._by_digest.clear()
        self._by_key.clear()

    def _repeats(self, found: PendingAnswer, signs: Signs) -> bool:
        return bool(signs.key) or signs.retried or not found.task.done() or not found.delivered

    def _begin(self, signs: Signs, sample: Sample) -> PendingAnswer:
        self.counts["sampled"] += 1
        telling = TurnDeltas()
        task = asyncio.create_task(sample(telling))
        sampling = PendingAnswer(self.counts["sampled"], signs.digest, task, telling)
        self._open.add(sampling)
        sampling.task.add_done_callback(lambda task: self._over(sampling))
        kept = [(self._by_digest, signs.digest), *([(self._by_key, signs.key)] if signs.key else [])]
        for table, name in kept:
            table[name] = sampling
            table.move_to_end(name)
            if len(table) > KEPT:
                table.popitem(last=False)
        return sampling

    def _over(self, sampling: PendingAnswer) -> None:
        self._open.discard(sampling)
        if not sampling.task.cancelled():
            sampling.task.exception()  # a waiting client gets it; none may be left

    def _give_up(self, sampling: PendingAnswer) -> None:
        if sampling.waiting == 0 and not sampling.task.done():
            self.counts["cancelled"] += 1
            sampling.task.cancel()
