"""Engines that stand by: loaded, at the newest weights and asked nothing, until another dies or is lent."""

from __future__ import annotations

from typing import Any

import pytest
from engine_world import World


@pytest.fixture
async def world():
    world = World(count=1, standbys=1)
    await world.engines.serve(0)
    yield world
    await world.engines.close()


async def test_one_that_stands_by_has_every_version_and_is_asked_nothing(world: Any):
    await world.engines.serve(1)
    assert [one.served for one in world.engines.replicas] == [1, 1]
    assert [await world.turn(f"s{n}") for n in range(4)] == [1] * 4
    assert world.asked == {world.serving(): 4}


async def test_it_serves_from_the_moment_that_another_dies_and_that_one_stands_by_when_it_is_back(world: Any):
    await world.turn()
    dead = world.serving()
    dying = world.engines.replicas[dead].client
    world.engines.replicas[dead].lifeline.handle.kill()
    dying.bring_back(0, "killed")
    assert world.serving() == 1 - dead  # before anything has been started
    await dying.revival
    await world.engines.serve(1)
    assert world.serving() == 1 - dead
    assert await world.turn() == 1 and world.asked[1 - dead] == 1


async def test_it_is_lent_first_and_its_loan_takes_nothing_from_the_run(world: Any):
    before = world.serving()
    lent = await world.engines.lend()
    assert lent is not None and lent.number != before and world.serving() == before
    await world.engines.serve(1)
    assert await world.turn() == 1
    await world.engines.take_back(lent)
    assert world.serving() == before and lent.served == 1


async def test_readings_are_of_those_that_serve(world: Any):
    serving = world.engines.replicas[world.serving()].lifeline.handle
    assert (await world.engines.stats())["process"] == serving.number
