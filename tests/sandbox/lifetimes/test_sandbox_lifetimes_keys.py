"""Test 29 of docs/sandbox.md: one key, one sandbox."""

from __future__ import annotations

import asyncio

import pytest

from etude.sandbox.errors import InfraError, UserError
from etude.sandbox.lifetimes.lifecycle import IdempotencyKeys


class Maker:
    def __init__(self) -> None:
        self.made = 0
        self.problem: Exception | None = None

    async def make(self) -> int:
        self.made += 1
        number = self.made
        await asyncio.sleep(0.01)
        if self.problem is not None:
            raise self.problem
        return number


async def test_many_at_once_get_one_thing_and_a_late_one_too() -> None:
    keys, maker = IdempotencyKeys[int](), Maker()
    assert await asyncio.gather(*(keys.once("k", "spec", maker.make) for _ in range(5))) == [1] * 5
    assert await keys.once("k", "spec", maker.make) == 1
    assert await keys.once("other", "spec", maker.make) == 2


async def test_a_failure_reaches_all_who_asked_and_forgets_the_key() -> None:
    keys, maker = IdempotencyKeys[int](), Maker()
    maker.problem = InfraError("not now")
    asked = await asyncio.gather(*(keys.once("k", "spec", maker.make) for _ in range(3)), return_exceptions=True)
    assert [str(answer) for answer in asked] == ["not now"] * 3 and maker.made == 1
    maker.problem = None
    assert await keys.once("k", "spec", maker.make) == 2


async def test_a_key_belongs_to_one_demand() -> None:
    keys, maker = IdempotencyKeys[int](), Maker()
    await keys.once("k", "spec", maker.make)
    with pytest.raises(UserError, match="another spec"):
        await keys.once("k", "another", maker.make)


async def test_one_who_gives_up_costs_the_others_nothing_and_the_last_one_ends_the_making() -> None:
    keys, maker = IdempotencyKeys[int](), Maker()
    first, second = (asyncio.create_task(keys.once("k", "spec", maker.make)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    ended = asyncio.Event()

    async def slow() -> int:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return 0

    alone = asyncio.create_task(keys.once("slow", "spec", slow))
    await asyncio.sleep(0.01)
    alone.cancel()
    await asyncio.wait_for(ended.wait(), 5)
    assert await keys.once("slow", "spec", maker.make) == 2


async def test_the_key_of_what_has_ended_makes_again() -> None:
    keys, maker = IdempotencyKeys[int](), Maker()
    await keys.once("k", "spec", maker.make)
    keys.forget("k")
    assert await keys.once("k", "spec", maker.make) == 2
