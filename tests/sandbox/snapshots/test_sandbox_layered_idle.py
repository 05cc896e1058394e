"""What a peer leaves half done goes by itself, and never from under somebody who uses it."""

from __future__ import annotations

import asyncio

import pytest

from etude.sandbox.fake.clock import run
from etude.sandbox.snapshots.transfer import IdleCache


class Thing:
    closed = 0

    def close(self) -> None:
        self.closed += 1


async def _thing() -> Thing:
    return Thing()


def test_it_goes_a_while_after_its_last_use() -> None:
    async def story() -> None:
        things: IdleCache[Thing] = IdleCache(10.0)
        async with things.use("a", _thing) as first:
            await asyncio.sleep(100)
        await asyncio.sleep(9)
        async with things.use("a", _thing) as again:
            assert again is first and not first.closed
        await asyncio.sleep(11)
        assert first.closed == 1 and "a" not in things
        async with things.use("a", _thing) as other:
            assert other is not first
        await things.close()
        await things.close()
        assert other.closed == 1

    run(story())


def test_what_is_done_goes_with_its_last_user_and_closing_waits_for_them() -> None:
    async def story() -> None:
        things: IdleCache[Thing] = IdleCache(10.0)
        order: list[str] = []

        async def use(name: str, done: bool) -> Thing:
            async with things.use("a", _thing) as thing:
                if done:
                    things.done("a")
                await asyncio.sleep(1)
                assert not thing.closed
                order.append(name)
                return thing

        first, second = await asyncio.gather(use("1", True), use("2", False))
        assert first is second and first.closed == 1 and "a" not in things
        using = asyncio.ensure_future(use("3", False))
        await asyncio.sleep(0.5)
        await things.close()
        assert order == ["1", "2", "3"] and (await using).closed == 1

    run(story())


def test_what_can_not_be_made_leaves_nothing() -> None:
    async def story() -> None:
        things: IdleCache[Thing] = IdleCache(10.0)

        async def broken() -> Thing:
            raise OSError("no disk")

        with pytest.raises(OSError, match="no disk"):
            async with things.use("a", broken):
                raise AssertionError("used")
        assert "a" not in things

    run(story())
