"""Costs, faults and time of the fake back end are drawn from a seed and happen where they were asked for."""

from __future__ import annotations

import asyncio

import pytest

from etude.sandbox.errors import CapacityExhausted, DiskFull, InfraError, SandboxDied, SandboxNotFound
from etude.sandbox.fake.clock import run
from etude.sandbox.fake.faults import FaultPlan
from etude.sandbox.fake.pool import MEASURED, FakePool
from etude.sandbox.spec import SandboxSpec


def test_one_seed_one_story() -> None:
    async def story(seed: int) -> list[str]:
        pool = FakePool(MEASURED, FaultPlan({"create_fails": 0.2, "dies_in_command": 0.2}), seed=seed)
        result = []
        for _ in range(50):
            try:
                box = await pool.create(SandboxSpec())
                result.append(str((await box.run("echo x")).rc))
            except InfraError as error:
                result.append(str(error))
            result.append(f"{asyncio.get_running_loop().time():.6f}")
        return result

    first, again, other = run(story(1)), run(story(1)), run(story(2))
    assert first == again != other
    assert any("create failed" in line for line in first) and any("died" in line for line in first)


async def test_the_nth_of_a_kind_fails_and_no_other() -> None:
    plan = FaultPlan(at={"create_fails": frozenset({2}), "disk_full": frozenset({1}), "partial_write": frozenset({2})})
    pool = FakePool(plan=plan)
    box = await pool.create(SandboxSpec())
    with pytest.raises(InfraError, match="injected"):
        await pool.create(SandboxSpec())
    assert pool.stats().live == 1
    with pytest.raises(DiskFull):
        await box.write("a", b"1")
    await box.write("a", b"1")
    with pytest.raises(SandboxDied):
        await box.write("a", b"2")
    assert box.state == "dead" and box.files.read("a", 10, 0) == b"1"  # whole or not at all


async def test_of_eight_children_one_fails_and_seven_live() -> None:
    """Test 20 of docs/sandbox.md."""
    pool = FakePool(plan=FaultPlan(at={"create_fails": frozenset({4})}))
    made = await (await pool.create(SandboxSpec())).fork(8)
    assert sum(isinstance(one, InfraError) for one in made) == 1 and pool.stats().live == 8


def test_ttl_idle_ttl_and_heartbeats_by_made_up_time() -> None:
    """Test 23 of docs/sandbox.md."""

    async def story() -> None:
        pool = FakePool()
        short, idle, kept = [
            await pool.create(spec)
            for spec in (SandboxSpec(ttl_s=60), SandboxSpec(idle_ttl_s=60), SandboxSpec(idle_ttl_s=60))
        ]
        await short.extend(90)
        for _ in range(24):  # twenty minutes of thinking
            await asyncio.sleep(50)
            await kept.heartbeat()
        assert (short.state, idle.state, kept.state) == ("dead", "dead", "running")
        with pytest.raises(SandboxNotFound, match="ttl"):
            await short.run("true")
        await asyncio.sleep(61)
        assert kept.state == "dead" and pool.stats().live == 0

    run(story())


async def test_one_key_makes_one_sandbox_while_it_lives() -> None:
    """Test 29 of docs/sandbox.md."""
    pool = FakePool(plan=FaultPlan(at={"create_fails": frozenset({1})}))
    with pytest.raises(InfraError):
        await pool.create(SandboxSpec(), key="k")
    one, two = await asyncio.gather(pool.create(SandboxSpec(), key="k"), pool.create(SandboxSpec(), key="k"))
    assert one is two
    await one.kill()
    assert await pool.create(SandboxSpec(), key="k") is not one


async def test_a_full_pool_says_when_to_ask_again() -> None:
    """Test 25 of docs/sandbox.md."""
    pool = FakePool(max_live=2)
    await asyncio.gather(*(pool.create(SandboxSpec()) for _ in range(2)))
    with pytest.raises(CapacityExhausted) as caught:
        await pool.create(SandboxSpec())
    assert caught.value.retry_after_s > 0 and pool.stats().live == 2


def test_made_up_time_that_would_stand_still_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="for ever"):
        run(asyncio.Event().wait())
