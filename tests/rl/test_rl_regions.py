"""Engines of regions follow at their own pace, and no group gets a token older than the version it was admitted at (promises 5, 7, 8)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from engine_world import World
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from etude.agent.policy.protocol import Request
from etude.learn.weights.errors import CorruptShard
from etude.rl import regions
from etude.rl.engines import AWAY, READY
from etude.rl.region import RegionSettings, require_placed
from etude.rl.regions import VersionFloor
from etude.rl.settings import RlSettings


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "LOOK_S", 0.002)


@pytest.fixture
async def world():
    world = World(count=1, regions={"far": 1}, lag=1, patience_s=0.2)
    world.there = 0
    await world.engines.serve(0)
    await until(lambda: ready(world))
    yield world
    await world.engines.close()


def far(world: World) -> Any:
    return world.engines.replicas[-1]


def ready(world: World) -> bool:
    return world.engines._distance(far(world).number) == READY


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


@given(st.integers(0, 3), st.lists(st.tuples(st.booleans(), st.integers(-1, 12)), max_size=40))
def test_the_floor_never_falls_and_waits_for_no_one_who_is_further_behind_than_the_lag(lag, events):
    floor, home, served = VersionFloor(lag), 0, -1
    for at_home, version in events:
        before = floor.version
        if at_home:
            home = max(home, version)
        else:
            served = min(version, home)
        rose = floor.rise(home, [served])
        assert floor.version >= max(before, home - lag) and floor.version <= home
        assert rose == (floor.version > before)
        if not floor.near(served):
            assert floor.version == home


@given(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_who_keeps_within_the_lag_is_asked_again_and_stays(lag, moves):
    """As many versions behind as the lag allows, for ever: it never reaches home's own version, and answers all the same."""
    floor, home = VersionFloor(lag), 10
    floor.rise(home, [])  # it was away
    for _ in moves:
        home += 1
        floor.rise(home, [home - lag])
    if len(moves) > lag:
        assert home - lag >= floor.version


async def test_a_region_takes_turns_and_new_versions_by_itself(world: World):
    world.answering.clear()
    turns = [asyncio.create_task(world.turn(f"s{n}")) for n in range(6)]
    await until(lambda: world.asked.total() == 6)
    world.answering.set()
    assert await asyncio.gather(*turns) == [0] * 6
    assert world.asked[far(world).number] == 3
    world.there = 1
    await world.engines.serve(1)
    await until(lambda: far(world).served == 1)
    assert world.engines.floor.version == 1
    assert world.trainer_calls.count(("join", far(world).receiver, None)) == 1
    assert ("acknowledge", far(world).receiver, 1) in world.trainer_calls


async def test_one_that_is_within_the_lag_answers_with_what_it_has_and_groups_are_admitted_there(world: World):
    heard: list[int] = []
    world.engines.regions.risen = lambda: heard.append(world.engines.floor.version)
    await world.engines.serve(1)
    assert world.engines.floor.version == 0 and ready(world) and heard == []
    world.there = 1
    await until(lambda: world.engines.floor.version == 1)
    assert heard == [1]


async def test_one_that_is_further_behind_is_asked_nothing_and_waited_for_by_no_one(world: World):
    world.link.clear()
    for version in (1, 2):
        await world.engines.serve(version)
    assert world.engines.floor.version == 2
    assert world.engines._distance(far(world).number) == AWAY
    assert [await world.turn(f"s{n}") for n in range(4)] == [2] * 4
    await until(lambda: ("leave", far(world).receiver) in world.trainer_calls)
    assert [name for name, _ in world.engines.receivers()] == [world.engines.home[0].receiver]
    assert any("is away: it has version 0, home serves 2" in message for message in world.said)


async def test_turns_in_flight_where_no_one_answers_any_more_are_given_up_and_it_is_asked_again_when_it_does():
    world = World(count=1, regions={"far": 1}, lag=1, patience_s=0.2)
    world.there = 0
    given_up: list[str] = []
    await world.engines.serve(0)
    await until(lambda: ready(world))
    far(world).client.give_up = given_up.append
    handle = far(world).lifeline.handle
    answers, handle.stats = handle.stats, asyncio.Event().wait  # never
    await until(lambda: not ready(world))
    assert given_up == ["the engine 0 of region far has been silent for 0.2 s"]
    assert await world.turn("s") == 0 and world.asked[far(world).number] == 0
    handle.stats = answers
    far(world).silent = False  # what the watch of its next life, or the answer that comes after all, says
    assert ready(world)
    await world.engines.close()


async def test_it_comes_back_although_training_never_waits(world: World):
    world.link.clear()
    await world.engines.serve(5)
    await until(lambda: ("leave", far(world).receiver) in world.trainer_calls)
    world.link.set()
    for version in range(6, 30):  # always one behind, which the lag allows
        world.there = version - 1
        await until(lambda version=version: far(world).served == version - 1)
        await world.engines.serve(version)
        if ready(world):
            break
    assert ready(world) and far(world).served < world.engines.floor.home
    assert world.trainer_calls.count(("join", far(world).receiver, None)) == 2
    await until(lambda: any("is back with version" in message for message in world.said))


async def test_a_process_that_dies_there_is_begun_again_without_end_and_answers_only_at_the_floor(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("etude.rl.restarts.FIRST_PAUSE_S", 0.001)
    for _ in range(5):  # more often than rl.max_restarts
        lives = far(world).lifeline.generation
        far(world).lifeline.handle.kill()
        await until(lambda lives=lives: far(world).lifeline.generation > lives and ready(world))
    world.link.clear()
    far(world).lifeline.handle.kill()
    await world.engines.serve(3)
    assert await world.turn("s") == 3
    world.link.set()
    await until(lambda: far(world).lifeline.generation == 6 or not far(world).up)
    assert not ready(world)  # version 0 is all that its store has
    world.there = 3
    await until(lambda: ready(world))
    assert far(world).served == 3


async def test_probes_and_evaluations_are_answered_by_home_alone(world: World):
    await world.engines.serve(1)
    assert ready(world)
    before = world.asked[far(world).number]
    for n in range(6):
        await world.engines.newest.complete(Request(f"p{n}", ()))
    assert world.asked[far(world).number] == before


async def test_a_chain_that_is_broken_in_the_region_is_healed_by_an_anchor_asked_for_once_a_version(world: World):
    async def broken(version: int | None = None) -> int:
        raise CorruptShard("delta-1/shard is not what was written")

    far(world).lifeline.handle.stage = broken
    await world.engines.serve(1)
    world.trainer_calls.clear()  # while home came to version 1 it may have been asked for version 0
    await until(lambda: ("heal",) in world.trainer_calls)
    await asyncio.sleep(0.05)
    assert world.trainer_calls.count(("heal",)) == 1
    assert sum("gets no weights from its store" in message for message in world.said) == 1


async def test_a_version_that_home_cannot_read_is_mended_by_an_anchor_and_served():
    world = World(count=1)
    await world.engines.serve(0)
    handle = world.engines.home[0].lifeline.handle
    whole, failures = handle.stage, [CorruptShard("rot")]

    async def stage(version: int | None = None) -> int:
        if failures:
            raise failures.pop()
        return await whole(version)

    handle.stage = stage
    await world.engines.serve(1)
    assert ("mend", 1) in world.trainer_calls and await world.turn() == 1
    await world.engines.close()


def test_where_a_region_runs_is_a_matter_of_a_cluster_whose_homes_are_named_too():
    regions = {"far": RegionSettings(store="x", engine={"far": 1})}
    require_placed({"far": RegionSettings(store="x")}, "", {})
    require_placed(regions, "host:1", {"home": 1})
    with pytest.raises(ValueError, match="without cluster.address: a run on its own machine counts no resources"):
        require_placed(regions, "", {})
    with pytest.raises(ValueError, match="give home's machines a resource of their own"):
        require_placed(regions, "host:1", {})


FAR = {"far": {"store": "s3://b/far"}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regions": {"Far away": {"store": "x"}}}, "a region's name is of small letters"),
        ({"regions": {"far": {"store": ""}}}, "a region has a store of its own"),
        ({"regions": {"far": {"store": "gs://x"}}}, "gs://x: weights go to a folder or to s3://"),
        ({"weight_store": "gs://x"}, "gs://x: weights go to a folder or to s3://"),
        ({"weight_store": "s3://b/far/", "regions": FAR}, "is that of rl.weight_store too"),
        ({"regions": {**FAR, "near": {"store": "s3://b/far"}}}, "is that of rl.regions.far too"),
        ({"regions": FAR, "region_lag": 3}, "lower rl.region_lag to 2 or less, or raise rl.max_staleness"),
        ({"regions": FAR, "mode": "sync"}, "with a staleness bound of 0"),
        ({"regions": {"far": {"store": "x", "engines": 0}}}, "greater than or equal to 1"),
    ],
)
def test_settings_that_can_not_hold_are_refused_with_a_remedy(settings: dict[str, Any], message: str):
    with pytest.raises(ValidationError, match=message):
        RlSettings.model_validate(settings)
    RlSettings.model_validate({"regions": FAR, "mode": "sync", "region_lag": 0})
