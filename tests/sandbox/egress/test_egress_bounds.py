"""What one sandbox can cost its door: heads, time, connections, memory, the log."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from egress_town import PUBLIC, Town, Web, connect, echo, get

from etude.sandbox.egress.decisions import Decision, DecisionFile, DecisionLog
from etude.sandbox.egress.dialer import Dialer, Streams
from etude.sandbox.egress.errors import RequestRefused
from etude.sandbox.egress.limits import ProxyLimits, RequestRate
from etude.sandbox.egress.service import ServiceRequest, ServiceResponse


async def test_a_head_that_is_too_large_is_refused(town: Town) -> None:
    """Test 36 of docs/sandbox.md."""
    await town.open([])
    assert await town.status(get("http://good.example/", "good.example", f"X-A: {'a' * 20000}")) == 431
    assert await town.status(b"A" * 40000) == 431
    assert [record.status for record in await town.recorded(2)] == [431, 431]


async def test_a_head_that_trickles_is_given_up(town: Town) -> None:
    """Test 36 of docs/sandbox.md: each byte in time, the whole not."""
    town.limits = ProxyLimits(head_s=0.5)
    await town.open([])
    async with town.client() as (reader, writer):
        with pytest.raises(OSError):
            for byte in connect("good.example:443"):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.05)
            await reader.readexactly(10_000)
            raise ConnectionResetError
    (record,) = await town.recorded(1)
    assert record.status == 408


async def test_a_connection_that_says_nothing_ends_without_a_record(town: Town) -> None:
    town.limits = ProxyLimits(idle_s=0.2)
    await town.open([])
    async with town.client() as (reader, _):
        assert await reader.read() == b""
    assert not town.journal.decisions


async def test_more_connections_than_places_wait_and_are_served_in_turn(town: Town) -> None:
    town.limits = ProxyLimits(connections=2, idle_s=30.0)
    await town.host("good.example", echo)
    await town.open(["good.example"])
    async with town.client() as first, town.client() as second, town.client() as third:
        for reader, writer in (first, second):
            writer.write(connect("good.example:443"))
            assert b"200" in await reader.readline()
        third[1].write(connect("good.example:443"))
        waiting = asyncio.ensure_future(third[0].readline())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        first[1].write_eof()
        assert b"200" in await asyncio.wait_for(waiting, 10)


async def test_a_side_that_does_not_read_makes_the_other_wait(town: Town) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        try:
            while True:
                writer.write(b"x" * 65536)
                sent += 65536
                await writer.drain()
        except OSError:
            return

    await town.host("good.example", flood)
    door = await town.open(["good.example"])
    async with town.client() as (reader, writer):
        writer.write(connect("good.example:443"))
        assert b"200" in await reader.readline()
        before = -1
        async with asyncio.timeout(10):
            while sent != before:  # until it stops growing
                before = sent
                await asyncio.sleep(0.2)
        assert sent < 64 << 20  # the kernel's buffers on four sockets and ours
        await door.close()


async def test_every_decision_is_a_line(town: Town, tmp_path: Path) -> None:
    path = tmp_path / "logs" / "egress.jsonl"
    town.journal = DecisionLog("sb-7", DecisionFile(path))
    await town.host("good.example", Web(), port=80)
    await town.open(["good.example"])
    await town.say(get("http://good.example/x", "good.example"))
    await town.say(connect("evil.example:443"))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["sandbox"], line["host"], line["allowed"]) for line in lines] == [
        ("sb-7", "good.example", True),
        ("sb-7", "evil.example", False),
    ]
    assert set(lines[0]) == set(Decision.__dataclass_fields__) and lines[1]["reason"]
    assert os.stat(path).st_mode & 0o777 == 0o600


async def test_a_log_that_can_not_be_written_closes_the_door(town: Town) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    town.journal = DecisionLog("sb-7", DecisionFile(full))
    await town.host("good.example", Web(), port=80)
    await town.open(["good.example"])
    assert await town.status(get("http://good.example/", "good.example")) == 200  # noticed by its record
    assert await town.status(get("http://good.example/", "good.example")) == 503


async def test_one_sandbox_can_not_fill_the_disk_with_its_log(town: Town, tmp_path: Path) -> None:
    path = tmp_path / "egress.jsonl"
    town.journal = DecisionLog("sb-7", DecisionFile(path), remembered=5, share=10)
    await town.host("good.example", Web(), port=80)
    await town.open(["good.example"])
    for _ in range(12):
        await town.say(connect("evil.example:443"))
    assert len(path.read_text().splitlines()) == 10 and len(town.journal.decisions) == 5
    assert await town.status(get("http://good.example/", "good.example")) == 503
    assert town.dialled == []


async def test_long_names_are_recorded_short(town: Town) -> None:
    await town.open([])
    await town.say(get(f"http://{'a' * 9000}.example/{'b' * 5000}", "x"))
    (record,) = await town.recorded(1)
    assert len(record.host) < 300 and len(record.path) < 300


async def test_a_door_leaves_no_descriptor_behind(town: Town) -> None:
    await town.host("good.example", echo)
    await town.host("plain.example", Web(), port=80, address="93.184.216.35")
    door = await town.open(["good.example", "plain.example"])
    own = f"/proc/{os.getpid()}/fd"

    async def round_trip() -> None:
        async with town.client() as (reader, writer):
            writer.write(connect("good.example:443"))
            assert b"200" in await reader.readline()
        await town.say(get("http://plain.example/", "plain.example"))
        await town.say(connect("evil.example:443"))

    await round_trip()
    await asyncio.sleep(0.1)
    before = len(os.listdir(own))
    for _ in range(20):
        await round_trip()
    await door.close()
    await asyncio.sleep(0.1)
    assert len(os.listdir(own)) <= before
    assert (PUBLIC, 443) in town.dialled


async def test_a_sandbox_that_asks_in_a_loop_is_slowed_down(town: Town) -> None:
    town.limits = ProxyLimits(requests_per_s=20)
    await town.open([])
    began = asyncio.get_running_loop().time()
    for _ in range(50):  # 40 at once, 10 at 20 a second
        assert await town.status(connect("evil.example:443")) == 403
    assert asyncio.get_running_loop().time() - began > 0.4


def test_a_pace_is_kept_in_the_long_run() -> None:
    pace, now_s = RequestRate(10), 0.0
    for _ in range(120):
        now_s += pace.wait_s(now_s)
    assert 9.5 < now_s < 10.5  # 20 at once, 100 at 10 a second
    assert pace.wait_s(now_s + 60) == 0


async def test_few_names_are_resolved_at_a_time(town: Town) -> None:
    going = most = 0

    async def slow(host: str, port: int) -> list[str]:
        nonlocal going, most
        going, most = going + 1, max(most, going + 1)
        await asyncio.sleep(0.02)
        going -= 1
        raise OSError("no such name")

    town._resolve = slow  # type: ignore[method-assign]
    await town.open([".example"])
    answers = await asyncio.gather(*(town.status(connect(f"{number}.a.example:443")) for number in range(10)))
    assert answers == [502] * 10 and most == town.limits.lookups


async def test_an_address_that_does_not_answer_leaves_time_for_the_next(town: Town) -> None:
    await town.host("good.example", echo, address="93.184.216.35")
    town.names["good.example"] = [PUBLIC, "93.184.216.35"]
    dial = town._dial

    async def silent(address: str, port: int) -> Streams:
        if address == PUBLIC:
            await asyncio.sleep(60)
        return await dial(address, port)

    dialer = Dialer(town._resolve, silent, patience_s=0.4)
    streams = await dialer.connect("good.example", 443, asyncio.Semaphore(1))
    streams[1].close()
    with pytest.raises(RequestRefused, match="answer"):
        town.names["good.example"] = [PUBLIC]
        await dialer.connect("good.example", 443, asyncio.Semaphore(1))


class _Shop:
    name = "shop"

    async def serve(self, ask: ServiceRequest) -> ServiceResponse:
        return ServiceResponse(body=b"open")


async def test_an_endless_body_that_no_one_asked_for_is_refused(town: Town) -> None:
    """Test 36 of docs/sandbox.md: what the door serves itself is only read, and reading the rest would cost the host a core."""
    await town.open([], {"shop": _Shop()})
    assert await town.status(b"GET /shop/ HTTP/1.1\r\nHost: door\r\nContent-Length: 3\r\n\r\nabc") == 200
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    assert (
        await town.status(b"GET /shop/ HTTP/1.1\r\nHost: door\r\nTransfer-Encoding: chunked\r\n\r\n" + 2 * chunk) == 413
    )
