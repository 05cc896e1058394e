"""Engines that are replaced while they serve: no turn fails for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from engine_world import World

from etude.rl.restarts import ProcessDied

NEVER_S = 60.0


def keep(reason: str) -> None:
    raise AssertionError(reason)


async def serving(**shape: int) -> World:
    world = World(**shape)
    await world.engines.serve(0)
    return world


async def let_pass() -> None:
    for _ in range(20):
        await asyncio.sleep(0.01)


async def test_a_turn_in_flight_ends_where_it_is_and_new_ones_go_to_the_others_meanwhile():
    world = await serving(count=2)
    world.answering.clear()
    turn = asyncio.create_task(world.turn("long"))
    await asyncio.sleep(0)
    (busy,) = world.asked
    renewal = asyncio.create_task(world.engines.renew(world.engines.replicas[busy], NEVER_S, keep))
    await let_pass()
    assert not world.processes[busy].dead and world.serving() == 1 - busy
    other = asyncio.create_task(world.turn("long"))  # its home is busy with leaving
    await asyncio.sleep(0)
    assert world.asked == {0: 1, 1: 1}
    world.answering.set()
    assert await turn == await other == 0
    await renewal
    assert world.processes[busy].dead and len(world.processes) == 3
    assert world.engines.restarts == 0
    await world.engines.close()


async def test_the_only_one_holds_new_turns_until_its_successor_is_there():
    world = await serving(count=1)
    world.answering.clear()
    turn = asyncio.create_task(world.turn("first"))
    await asyncio.sleep(0)
    renewal = asyncio.create_task(world.engines.renew(world.engines.replicas[0], NEVER_S, keep))
    await let_pass()
    held = asyncio.create_task(world.turn("second"))
    await let_pass()
    assert world.asked == {0: 1} and not held.done()
    world.answering.set()
    await renewal
    assert await turn == await held == 0
    assert [process.dead for process in world.processes] == [True, False]
    await world.engines.close()


async def test_a_turn_that_takes_too_long_fails_as_ours():
    world = await serving(count=1)
    world.answering.clear()
    turn = asyncio.create_task(world.turn())
    await asyncio.sleep(0)
    await world.engines.renew(world.engines.replicas[0], 0.1, keep)
    world.answering.set()
    with pytest.raises(ProcessDied):
        await turn
    assert await world.turn() == 0
    await world.engines.close()


async def test_weights_that_come_meanwhile_are_served_by_the_others_and_by_the_successor():
    world = await serving(count=2)
    await asyncio.gather(world.engines.renew(world.engines.replicas[0], NEVER_S, keep), world.engines.serve(1))
    assert [one.served for one in world.engines.replicas] == [1, 1]
    assert {call for call in world.trainer_calls if call[0] == "join"} >= {("join", "engine-0.1", "engine-0.0")}
    await world.engines.close()


@pytest.mark.parametrize("count", [1, 2])
async def test_one_that_does_not_come_up_is_begun_again_as_it_was(count: int):
    world = await serving(count=count)
    world.broken = True
    undone: list[Any] = []

    def undo(reason: str) -> None:
        undone.append(reason)
        world.broken = False

    await world.engines.renew(world.engines.replicas[0], NEVER_S, undo)
    assert undone == ["killed"] and world.engines.restarts == 1
    assert await world.turn() == 0 and world.engines.replicas[0].up
    await world.engines.close()


async def test_one_that_dies_while_it_drains_comes_back_once():
    world = await serving(count=2)
    world.answering.clear()
    turn = asyncio.create_task(world.turn())
    await asyncio.sleep(0)
    (busy,) = world.asked
    one = world.engines.replicas[busy]
    renewal = asyncio.create_task(world.engines.renew(one, NEVER_S, keep))
    await let_pass()
    one.lifeline.handle.kill()
    one.client.bring_back(0, "killed")
    world.answering.set()
    await asyncio.gather(turn, renewal, return_exceptions=True)
    assert renewal.exception() is None and one.lifeline.generation == 1 and len(world.processes) == 3
    await world.engines.close()


async def test_one_that_is_lent_is_replaced_when_it_is_back():
    world = await serving(count=2)
    lent = await world.engines.lend()
    assert lent is not None
    renewal = asyncio.create_task(world.engines.renew(lent, NEVER_S, keep))
    await let_pass()
    assert not renewal.done() and not world.processes[lent.number].dead
    await world.engines.take_back(lent)
    await renewal
    assert lent.lifeline.generation == 1 and not lent.lent
    await world.engines.close()
