"""An engine lent to an evaluation keeps its version, passes no turn of the run, and never answers the run with old weights (promise 5)."""

from __future__ import annotations

import pytest
from engine_world import World


@pytest.fixture
async def world():
    world = World()
    await world.engines.serve(0)
    yield world
    await world.engines.close()


async def test_new_weights_pass_it_by_and_it_has_them_when_it_is_back(world):
    lent = await world.engines.lend()
    assert lent is not None and world.trainer_calls[-1] == ("leave", lent.receiver)
    await world.engines.serve(1)
    assert lent.served == 0 and lent.lifeline.handle.version == 0
    assert {await world.turn(f"s{n}") for n in range(6)} == {1}
    await world.engines.take_back(lent)
    assert lent.served == 1 and not lent.lent
    assert world.trainer_calls[-2:] == [("join", lent.receiver, None), ("acknowledge", lent.receiver, 1)]
    await world.engines.serve(2)
    assert [one.served for one in world.engines.replicas] == [2, 2]


async def test_the_last_one_is_not_lent(world):
    assert await world.engines.lend() is not None
    assert await world.engines.lend() is None


async def test_a_trainer_that_comes_back_hears_only_of_those_that_listen(world):
    lent = await world.engines.lend()
    (receiver, served) = world.engines.receivers()[0]
    assert (len(world.engines.receivers()), served) == (1, 0) and receiver != lent.receiver


async def test_a_loan_ends_when_no_one_else_is_left(world):
    """Were it asked as it is, a group admitted at version 1 would hold tokens of version 0."""
    lent = await world.engines.lend()
    await world.engines.serve(1)
    other = next(one for one in world.engines.replicas if one is not lent)
    other.client.lost = RuntimeError("given up")
    assert await world.turn() == 1
    assert not lent.lent and lent.served == 1
    await world.engines.serve(2)
    assert lent.served == 2


async def test_serving_calls_it_back_when_no_one_else_is_left(world):
    lent = await world.engines.lend()
    other = next(one for one in world.engines.replicas if one is not lent)
    other.client.lost = RuntimeError("given up")
    await world.engines.serve(1)
    assert not lent.lent and lent.served == 1


async def test_one_that_dies_while_it_is_lent_comes_back_to_the_run(world):
    lent = await world.engines.lend()
    await world.engines.serve(1)
    lent.lifeline.handle.kill()
    lent.client.bring_back(0, "killed")
    await lent.client.revival
    assert (lent.lent, lent.served, lent.lifeline.generation) == (False, 1, 1)
    before = list(world.trainer_calls)
    await world.engines.take_back(lent)
    assert world.trainer_calls == before
