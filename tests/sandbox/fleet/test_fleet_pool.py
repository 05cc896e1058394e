"""Many hosts are one pool: failures are reported, losses are not replaced, a repeated request is served once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from etude.sandbox.errors import CapacityExhausted, InfraError, SandboxDied, SandboxNotFound, Unsupported, UserError
from etude.sandbox.fake.clock import run
from etude.sandbox.fake.faults import FaultPlan
from etude.sandbox.fleet.errors import HostLost
from etude.sandbox.fleet.fleet import Fleet
from etude.sandbox.fleet.hosts import HEARTBEAT_S, LEASE_S
from etude.sandbox.spec import Network, SandboxSpec, SnapshotRef

FAILS = FaultPlan({"create_fails": 1.0})


def test_sandboxes_spread_work_and_end(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(3)
        boxes = await asyncio.gather(*(fleet.create(SandboxSpec(labels={"n": str(n % 2)})) for n in range(30)))
        assert all(6 <= count <= 14 for count in bench.live().values())
        outs = [(await box.run(f"echo {number}")).out for number, box in enumerate(boxes)]
        assert outs == [f"{number}\n".encode() for number in range(30)]
        assert len(fleet.list({"n": "1"})) == 15 and fleet.stats().live == 30
        await asyncio.gather(*(box.kill() for box in boxes[:20]))
        assert sum(bench.live().values()) == fleet.stats().live == 10
        await fleet.close()
        assert sum(bench.live().values()) == 0
        with pytest.raises(SandboxNotFound):
            await fleet.create(SandboxSpec())
        with pytest.raises(SandboxNotFound):
            await boxes[29].run("true")

    run(story())


def test_a_failing_host_is_left_after_three_faults_and_tried_before_it_is_trusted(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2, plans={0: FAILS}, attempts=8)
        for _ in range(20):
            await fleet.create(SandboxSpec())
        assert bench.live() == {"h0": 0, "h1": 20} and not fleet.registry.placement.takes("h0")
        asked = bench.pools["h0"].faults._asked["create_fails"]
        assert asked == 3
        await asyncio.sleep(60)  # its tries fail too
        assert not fleet.registry.placement.takes("h0") and bench.pools["h0"].faults._asked["create_fails"] > asked
        bench.pools["h0"].faults.plan = FaultPlan()
        await asyncio.sleep(600)
        assert fleet.registry.placement.takes("h0") and bench.live()["h0"] == 0  # what it tried with is gone
        await fleet.create(SandboxSpec())
        assert bench.live()["h0"] == 1
        await fleet.close()

    run(story())


def test_a_dead_host_fails_what_waits_there_and_replaces_nothing(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2)
        boxes = [await fleet.create(SandboxSpec()) for _ in range(10)]
        there = [box for box in boxes if box.id.startswith("h0")]
        waiting = [asyncio.ensure_future(box.run("sleep 5000", timeout_s=9000)) for box in there]
        streams = [await box.exec("sleep 5000") for box in there]
        await asyncio.sleep(1)
        bench.links["h0"].silent = True
        start = asyncio.get_running_loop().time()
        for one in [*waiting, *(asyncio.ensure_future(stream.wait()) for stream in streams)]:
            with pytest.raises(HostLost, match="h0 is lost"):
                await one
        assert asyncio.get_running_loop().time() - start <= LEASE_S + 3 * HEARTBEAT_S
        assert {box.state for box in there} == {"dead"} and fleet.stats().live == 10 - len(there)
        with pytest.raises(SandboxDied):
            await there[0].read("x")
        await fleet.create(SandboxSpec())
        assert bench.live()["h1"] == 11 - len(there)
        bench.links["h0"].silent = False  # it comes back: what it held of ours is ended, and it serves again
        await asyncio.sleep(600)
        assert bench.live()["h0"] == 0 and fleet.registry.placement.takes("h0") and there[0].state == "dead"
        await fleet.close()

    run(story())


def test_a_broken_wire_is_a_lost_host_at_the_next_heartbeat(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2)
        boxes = [await fleet.create(SandboxSpec()) for _ in range(4)]
        bench.links["h0"].broken = True
        bench.pools["h0"].crash()
        await asyncio.sleep(HEARTBEAT_S + 1)
        assert [box.state == "dead" for box in boxes] == [box.id.startswith("h0") for box in boxes]
        for _ in range(5):
            await fleet.create(SandboxSpec())
        await boxes[[box.state for box in boxes].index("dead")].kill()  # idempotent
        await fleet.close()

    run(story())


def test_lost_answers_make_no_second_sandbox(bench: Any) -> None:
    """Test 29 of docs/sandbox.md."""

    async def story() -> None:
        fleet = await bench.open(1)
        bench.links["h0"].lose_next = 2
        await fleet.create(SandboxSpec())
        assert bench.live() == {"h0": 1} and bench.pools["h0"].stats().created == 1
        bench.links[
            "h0"
        ].lose_next = 3  # every repeat too: another attempt is made, and what the first one made is swept
        await fleet.create(SandboxSpec())
        await asyncio.sleep(2 * HEARTBEAT_S)
        assert bench.live() == {"h0": 2} and fleet.stats().live == 2
        one, two = await asyncio.gather(*(fleet.create(SandboxSpec(), key="mine") for _ in range(2)))
        assert one is two and fleet.stats().live == 3
        await one.kill()
        assert await fleet.create(SandboxSpec(), key="mine") is not one
        await fleet.close()

    run(story())


def test_a_cancelled_create_leaves_nothing(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(1)
        making = asyncio.ensure_future(fleet.create(SandboxSpec()))
        await asyncio.sleep(0.002)
        making.cancel()
        await asyncio.sleep(0.5)
        assert bench.live() == {"h0": 1}  # the host made it all the same
        assert len(await fleet.reap()) == 1 and await fleet.reap() == [] and bench.live() == {"h0": 0}
        assert fleet.registry.placement.places["h0"].live == 0
        await fleet.close()

    run(story())


def test_a_full_fleet_is_waited_for_and_then_says_so(bench: Any) -> None:
    """Test 25 of docs/sandbox.md."""

    async def story() -> None:
        fleet = await bench.open(2, max_live=2, patience_s=20.0)
        boxes = [await fleet.create(SandboxSpec()) for _ in range(4)]
        waiting = asyncio.ensure_future(fleet.create(SandboxSpec()))
        await asyncio.sleep(5)
        assert not waiting.done() and fleet.stats().waiting == 1
        await boxes[0].kill()
        await waiting
        with pytest.raises(CapacityExhausted, match="none of 2 hosts"):
            await fleet.create(SandboxSpec())
        assert fleet.stats().live == 4
        await fleet.close()

    run(story())


def test_what_the_caller_did_is_not_tried_again(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2)
        for spec, error in (
            (SandboxSpec(network=Network("host")), Unsupported),
            (SandboxSpec(files={"/proc/x": b""}), UserError),
        ):
            with pytest.raises(error):
                await fleet.create(spec)
        assert sum(pool.stats().created for pool in bench.pools.values()) == 0 and fleet.stats().live == 0
        with pytest.raises(SandboxNotFound, match="no-image"):
            await fleet.create(SandboxSpec(image="no-image"))
        await fleet.close()

    run(story())


def test_forks_go_next_to_their_layers_and_elsewhere_only_what_lacks_is_shipped(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2, max_live=10)
        box = await fleet.create(SandboxSpec(files={"a": b"1", "gone": b"x"}))
        await box.snapshot()
        await box.remove("gone")
        await box.write("b", b"2")
        children = await box.fork(3)
        home = box.id.split("/")[0]
        assert {child.id.split("/")[0] for child in children} == {home} and fleet.shipping.shipped == 0
        far = [child for child in await box.fork(12) if not child.id.startswith(home)]
        assert len(far) >= 6 and fleet.shipping.shipped == 2
        for child in (*children, *far):
            assert await child.export() == {"a": b"1", "b": b"2"}
        await far[0].write("c", b"3")
        assert (await far[0].fork(1))[0].id.split("/")[0] != home
        assert fleet.shipping.shipped == 2  # the third layer was made there, the two below had been brought
        await fleet.close()

    run(story())


def test_a_snapshot_whose_only_host_is_lost_is_a_typed_error(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2, attempts=2)
        box = await fleet.create(SandboxSpec(files={"a": b"1"}))
        ref = await box.snapshot()
        name = box.id.split("/")[0]
        bench.links[name].broken = True
        await asyncio.sleep(2 * HEARTBEAT_S)
        (error,) = await fleet.restore(ref, SandboxSpec())
        assert isinstance(error, SandboxNotFound) and "no living host" in str(error)
        assert fleet.registry.placement.takes("h0") or fleet.registry.placement.takes(
            "h1"
        )  # no fault but the lost one's
        await fleet.close()

    run(story())


def test_a_corrupt_layer_is_never_served(bench: Any) -> None:
    """Test 21 of docs/sandbox.md, over the wire: the next host that has the layer gives it."""

    async def story(hosts: int) -> Any:
        fleet: Fleet = await bench.open(hosts, max_live=2)
        box = await fleet.create(SandboxSpec(files={"a": b"right"}))
        ref = await box.snapshot()
        home = box.id.split("/")[0]
        if hosts == 3:  # a second whole copy
            await box.fork(2)
        export = bench.pools[home].host_layers.export_layer

        async def spoilt(digest: str, start: int) -> tuple[bytes, bool]:
            piece, more = await export(digest, start)
            return piece.replace(b"right", b"wrong"), more

        bench.pools[home].host_layers.export_layer = spoilt
        while bench.live()[home] < 2:
            await fleet.restore(ref, SandboxSpec())
        made = await fleet.restore(ref, SandboxSpec(), 2)
        found = [one if isinstance(one, InfraError) else await one.read("a") for one in made]
        await fleet.close()
        return found

    assert run(story(3)) == [b"right"] * 2
    bench.pools.clear(), bench.links.clear()
    assert all(isinstance(one, InfraError) and "digest" in str(one) for one in run(story(2)))


def test_shipping_from_a_host_that_is_lost_ends_with_it(bench: Any) -> None:
    """It falls silent in the middle of a layer: what waits for the rest fails when its lease is over, and holds up no other."""

    async def story() -> None:
        fleet = await bench.open(2, max_live=1, attempts=1)
        box = await fleet.create(SandboxSpec())
        await box.write("a", bytes(9 << 20))
        ref = await box.snapshot()
        home = box.id.split("/")[0]
        export = bench.pools[home].host_layers.export_layer

        async def falls_silent(digest: str, start: int) -> tuple[bytes, bool]:
            bench.links[home].silent = start > 0
            return await export(digest, start)

        bench.pools[home].host_layers.export_layer = falls_silent
        start_s = asyncio.get_running_loop().time()
        (error,) = await fleet.restore(ref, SandboxSpec())
        assert isinstance(error, InfraError) and f"{home} is lost" in str(error)
        assert asyncio.get_running_loop().time() - start_s < 2 * LEASE_S
        await fleet.close()

    run(story())


def test_differences_since_a_snapshot_of_another_host(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2, max_live=1)
        one, two = [await fleet.create(SandboxSpec(files={"a": b"%d" % number})) for number in range(2)]
        (change,) = await two.diff(await one.snapshot())
        assert (change.path, change.kind) == ("work/a", "changed") and fleet.shipping.shipped == 1
        with pytest.raises(SandboxNotFound, match="no such snapshot"):
            await two.diff(SnapshotRef("f" * 64))
        assert two.state == "running"
        await fleet.close()

    run(story())


def test_hot_kinds_are_ready_before_they_are_asked_for(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2, warm=4)
        for number in range(8):
            box = await fleet.create(SandboxSpec(files={"n": b"%d" % number}, labels={"n": str(number)}))
            assert await box.read("n") == b"%d" % number and box.spec.labels == {"n": str(number)}
            await asyncio.sleep(0.2)
        assert fleet.ready.claimed >= 4 and len(fleet.list()) == 8
        assert len(fleet.list({"n": "7"})) == 1
        await asyncio.sleep(120)  # gone cold
        assert fleet.stats().live == 8 and fleet.ready.held() == []
        await fleet.close()
        assert sum(bench.live().values()) == 0

    run(story())


def test_a_ttl_that_ends_a_sandbox_far_away_is_learnt(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(1)
        box = await fleet.create(SandboxSpec(ttl_s=30))
        assert box.deadline_s == pytest.approx(30, abs=1)
        await asyncio.sleep(30 + 2 * HEARTBEAT_S)
        assert box.state == "dead" and fleet.stats().live == 0
        assert fleet.registry.placement.places["h0"].live == 0
        assert fleet.registry.placement.takes("h0")  # it is no fault
        await fleet.close()

    run(story())


def test_without_any_host_there_is_no_fleet(bench: Any) -> None:
    async def story() -> None:
        with pytest.raises(Unsupported, match="none of 0 hosts"):
            await bench.open(0)

    run(story())


def test_who_gives_up_a_restore_leaves_no_children(bench: Any) -> None:
    """Test 20 of docs/sandbox.md: those that were born while the others waited for room are ended."""

    async def story() -> None:
        fleet = await bench.open(1, max_live=4)
        box = await fleet.create(SandboxSpec())
        await box.write("a", b"1")
        ref = await box.snapshot()
        asked = asyncio.ensure_future(fleet.restore(ref, SandboxSpec(), 8))
        await asyncio.sleep(5)
        assert not asked.done(), asked.result()
        assert bench.live() == {"h0": 4}
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert bench.live() == {"h0": 1} and fleet.stats().live == 1
        for number in (0, 1001):
            with pytest.raises(UserError, match="from 1 to 1000"):
                await fleet.restore(ref, SandboxSpec(), number)
        await fleet.close()

    run(story())


def test_a_sandbox_in_which_nothing_was_written_forks_too(bench: Any) -> None:
    async def story() -> None:
        fleet = await bench.open(2)
        box = await fleet.create(SandboxSpec())
        children = await box.fork(2)
        assert [child.state for child in children] == ["running", "running"]
        await fleet.close()

    run(story())
