"""A session stays where its keys and values are; who serves too old a version, or is dead, is not asked while another can be."""

from __future__ import annotations

import asyncio
from typing import Any

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion
from etude.rl.replicas import Replicas


class Fake:
    """At the outer edge: an engine's client that answers when it is let."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.released: list[str] = []
        self.lost: BaseException | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def complete(self, request: Request) -> Completion:
        self.asked.append(request.session_id)
        await self.gate.wait()
        return Completion()

    async def release(self, session_id: str) -> None:
        self.released.append(session_id)

    async def close(self) -> None: ...


async def at_hand(number: int) -> None: ...


def several(count: int) -> tuple[Replicas, list[Fake], list[bool]]:
    fakes, ready = [Fake() for _ in range(count)], [True] * count
    replicas: list[Any] = list(fakes)
    distance = lambda n: 0 if ready[n] else 1 if replicas[n].lost is None else 3
    return Replicas(replicas, distance, at_hand), fakes, ready


def turn(session: str) -> Request:
    return Request(session, ())


async def test_a_session_stays_and_new_ones_go_where_the_fewest_turns_are():
    policy, (first, second), _ = several(2)
    first.gate.clear()
    waiting = asyncio.create_task(policy.complete(turn("a")))
    await asyncio.sleep(0)
    for _ in range(3):
        await policy.complete(turn("b"))
    assert (first.asked, second.asked) == (["a"], ["b"] * 3)
    first.gate.set()
    await waiting
    await policy.complete(turn("a"))
    assert first.asked == ["a", "a"]
    await policy.release("b")
    assert second.released == ["b"]


async def test_the_sessions_of_one_that_is_not_ready_go_elsewhere():
    policy, (first, second), ready = several(2)
    await policy.complete(turn("a"))
    ready[0] = False
    await policy.complete(turn("a"))
    ready[0] = True
    await policy.complete(turn("a"))  # its keys and values are there now
    assert (first.asked, second.asked) == (["a"], ["a", "a"])


async def test_where_none_is_ready_one_that_comes_back_is_asked_and_never_one_that_is_lost():
    policy, (first, second), ready = several(2)
    ready[:] = [False, False]
    first.lost = RuntimeError("died too often")
    await policy.complete(turn("a"))
    assert (first.asked, second.asked) == ([], ["a"])
