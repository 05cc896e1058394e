"""A body that is not sent holds no connection or memory for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from etude.agent.proxy import body as module
from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.body import Bodies


class Arriving:
    """A request whose pieces come when they are given; None ends it."""

    def __init__(self) -> None:
        self.headers = {"content-type": "application/json"}
        self.pieces: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def stream(self) -> Any:
        while (piece := await self.pieces.get()) is not None:
            yield piece


def begun(bodies: Bodies, size: int) -> tuple[Arriving, asyncio.Task[bytes]]:
    request = Arriving()
    request.pieces.put_nowait(b"x" * size)
    return request, asyncio.ensure_future(bodies.read(request))  # pyright: ignore[reportArgumentType]


async def test_a_body_that_is_never_sent_to_its_end_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_S", 0.01)
    bodies = Bodies()
    _, reading = begun(bodies, 10)
    with pytest.raises(ProxyRequestError, match="did not arrive in time") as refused:
        await reading
    assert refused.value.status == 408 and bodies.held_bytes == 0


async def test_all_bodies_that_arrive_together_have_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 100)
    bodies = Bodies()
    first, reading = begun(bodies, 60)
    await asyncio.sleep(0)
    _, other = begun(bodies, 60)
    with pytest.raises(ProxyRequestError, match="arriving already") as refused:
        await other
    assert refused.value.status == 503
    first.pieces.put_nowait(None)
    assert len(await reading) == 60 and bodies.held_bytes == 0


async def test_a_client_that_goes_away_holds_nothing() -> None:
    bodies = Bodies()
    _, reading = begun(bodies, 60)
    await asyncio.sleep(0.001)
    reading.cancel()
    await asyncio.wait((reading,))
    assert bodies.held_bytes == 0


async def test_one_body_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY_BYTES", 50)
    bodies = Bodies()
    with pytest.raises(ProxyRequestError) as refused:
        await begun(bodies, 51)[1]
    assert refused.value.status == 413 and bodies.held_bytes == 0
