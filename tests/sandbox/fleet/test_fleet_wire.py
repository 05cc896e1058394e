"""A sandbox on a host at the other end of a wire is a sandbox: the same results, the same errors, bounded batches."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from etude.sandbox.egress.decisions import Decision
from etude.sandbox.errors import CapacityExhausted, SandboxNotFound, Unsupported, UserError
from etude.sandbox.fake.clock import run
from etude.sandbox.fake.command import FakeCommand
from etude.sandbox.fake.pool import FakePool
from etude.sandbox.fleet.demand import HostFacts
from etude.sandbox.fleet.errors import AnswerLost
from etude.sandbox.fleet.host import LocalHost
from etude.sandbox.fleet.hosts import LEASE_S
from etude.sandbox.fleet.wire import server as output
from etude.sandbox.fleet.wire.remote import RemoteHost
from etude.sandbox.fleet.wire.server import HostServer, LoopLink
from etude.sandbox.pool import open_pool
from etude.sandbox.protocol import Sandbox, SandboxPool
from etude.sandbox.settings import SandboxSettings
from etude.sandbox.spec import Network, SandboxSpec

BIG = 300_000


async def _flood(command: FakeCommand) -> int:
    for number in range(40):
        command.put(bytes([number]) * BIG)
        await asyncio.sleep(0)
    return 7


def far(pool: SandboxPool) -> tuple[RemoteHost, LoopLink]:
    facts = HostFacts(1000, 4, 10, 4, 100.0, pool.probe())
    link = LoopLink(HostServer(LocalHost("far", pool, facts)))
    return RemoteHost("far", link), link


@pytest_asyncio.fixture(params=["fake", "auto"])
async def box(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    try:
        pool = await open_pool(SandboxSettings(backend=request.param))
    except Unsupported as error:
        pytest.skip(str(error))
    host, link = far(pool)
    yield await host.create(SandboxSpec(files={"hello": b"\xff\x00hi"}), "me", "1")
    await link.close()
    await pool.close()


async def test_files_and_commands_are_as_near(box: Sandbox) -> None:
    """Test 28 of docs/sandbox.md, over a wire, with the fake and with this machine's own back end."""
    done = await box.run("cat hello; echo no >&2" if "fake" not in box.id else "cat hello")
    assert (done.rc, done.out) == (0, b"\xff\x00hi")
    await box.write("d/new", b"1", mode=0o755)
    assert {entry.path for entry in await box.list()} == {"hello", "d", "d/new"}
    assert await box.export("d") == {"new": b"1"}
    with pytest.raises(UserError):
        await box.read("absent")
    assert (await box.run("sleep 1000", timeout_s=0.3)).timed_out
    await box.remove("hello")
    await box.kill()
    await box.kill()
    assert box.state == "dead"
    with pytest.raises(SandboxNotFound):
        await box.run("true")


async def test_a_stream_comes_whole_and_in_order_in_bounded_batches() -> None:
    """Test 7 of docs/sandbox.md: a slow reader makes the host hold AHEAD_BYTES and a chunk, no more."""
    host, _ = far(FakePool(programs={"flood": _flood}))
    box = await host.create(SandboxSpec(), "me", "1")
    process = await box.exec(["flood"], max_output_bytes=1 << 30)
    got: list[bytes] = []
    seqs: list[int] = []
    async for chunk in process.stream():
        got.append(chunk.data)
        seqs.append(chunk.seq)
        await asyncio.sleep(0)
    assert b"".join(got) == b"".join(bytes([number]) * BIG for number in range(40)) and seqs == list(range(40))
    assert (await process.wait()).rc == 7
    server = far(FakePool(programs={"flood": _flood}))[1]._server
    name = await server.create(SandboxSpec(), "me", "1")
    number = await server.start(name, ["flood"])
    batch, ended = await server.pull(number)
    await asyncio.sleep(0.05)
    held = server._processes[number][2]
    assert not ended and sum(len(chunk.data) for chunk in batch) <= output.BATCH_BYTES + BIG
    assert held._held_bytes <= output.AHEAD_BYTES + BIG
    server.close()


async def test_stdin_signals_and_waits_travel() -> None:
    host, _ = far(FakePool())
    box = await host.create(SandboxSpec(), "me", "1")
    process = await box.exec(["cat"], stdin=None)
    await process.write(b"over ")
    await process.write(b"there")
    await process.close_stdin()
    assert (await process.wait()).out == b"over there"
    sleeping = await box.exec("sleep 1000")
    await asyncio.sleep(0)
    await sleeping.signal(signal.SIGTERM)
    assert (await sleeping.wait()).signal == signal.SIGTERM


async def test_tars_snapshots_and_patches_travel() -> None:
    host, _ = far(FakePool())
    box = await host.create(SandboxSpec(files={"a": b"1\n"}), "me", "1")
    ref = await box.snapshot("base")
    await box.write("a", b"2\n")
    assert [change.kind for change in await box.diff(ref)] == ["changed"]
    assert b"-1\n+2\n" in await box.git_patch(ref)
    back = await host.restore(ref, SandboxSpec(files={"b": b"3"}), "me", "2")
    assert await back.export() == {"a": b"1\n", "b": b"3"}
    await back.put_tar("copy", await box.get_tar())
    assert await back.read("copy/a") == b"2\n"
    with pytest.raises(Unsupported, match="connect"):
        await box.connect(80)


async def test_errors_arrive_as_what_they_were() -> None:
    host, _ = far(FakePool(max_live=1))
    await host.create(SandboxSpec(), "me", "1")
    with pytest.raises(CapacityExhausted) as caught:
        await host.create(SandboxSpec(), "me", "2")
    assert caught.value.retry_after_s == 1.0
    with pytest.raises(UserError, match="nowhere"):
        await host.create(SandboxSpec(image="nowhere"), "me", "3")


@pytest.mark.parametrize("method", ["_boxes", "close", "__class__", "_drop_dead"])
async def test_nothing_but_the_interface_can_be_asked_for(method: str) -> None:
    host, link = far(FakePool())
    box = await host.create(SandboxSpec(), "me", "1")
    with pytest.raises(ValueError, match="nothing that a host"):
        await link.ask(method)
    good, error = await link.ask("call", box.id, method)
    assert not good and "no operation" in str(error)


async def test_a_lost_answer_repeated_with_its_key_made_one_sandbox() -> None:
    """Test 29 of docs/sandbox.md."""
    pool = FakePool()
    host, link = far(pool)
    link.lose_next = 1
    with pytest.raises(AnswerLost):
        await host.create(SandboxSpec(), "me", "k")
    box = await host.create(SandboxSpec(), "me", "k")
    assert pool.stats().live == pool.stats().created == 1 and pool.list()[0].id == box.id


async def test_what_is_being_made_for_a_key_that_ends_does_not_stay() -> None:
    from etude.sandbox.fake.pool import Costs

    pool = FakePool(Costs(create_s=0.02, spread=0))
    host, _ = far(pool)
    making = asyncio.ensure_future(host.create(SandboxSpec(), "me", "k"))
    await asyncio.sleep(0.005)
    await host.end("me", "k")
    await making
    await asyncio.sleep(0.01)
    assert pool.stats().live == 0


def test_a_fleet_that_is_heard_of_no_more_loses_its_sandboxes_and_no_other_does() -> None:
    """Test 11 of docs/sandbox.md: gone within the lease and one cycle."""

    async def story() -> None:
        pool = FakePool()
        host, link = far(pool)
        for owner in ("gone", "here"):
            await host.beat(owner)
            await host.create(SandboxSpec(labels={"owner": owner}), owner, "1")
        for _ in range(int(LEASE_S / 10) + 2):
            await asyncio.sleep(10)
            await host.beat("here")
        assert [box.spec.labels["owner"] for box in pool.list()] == ["here"]
        await link.close()

    run(story())


def test_a_silent_host_is_given_up_after_a_time() -> None:
    async def story() -> None:
        host, link = far(FakePool())
        link.silent = True
        with pytest.raises(AnswerLost, match="within 60"):
            await host.facts()

    run(story())


async def test_decisions_at_the_door_come_with_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = FakePool()
    host, _ = far(pool)
    box = await host.create(SandboxSpec(network=Network("allowlist", ("a.example",))), "me", "1")
    result = [Decision(0.0, "x", "CONNECT", "a.example", 443, "", True, 200, "", 0, 0, 0.0)]
    monkeypatch.setattr(type(pool.list()[0]), "decisions", result)
    assert box.decisions == []
    await box.run("true")
    assert box.decisions == result
