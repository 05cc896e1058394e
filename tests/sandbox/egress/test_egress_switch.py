"""A policy that changes under established flows. Test 37 of docs/sandbox.md throughout."""

from __future__ import annotations

import asyncio

import pytest
from egress_town import Town, connect, echo

from etude.sandbox.egress.dialer import Streams
from etude.sandbox.egress.policy import AllowList


async def established(streams: Streams, host: str) -> None:
    streams[1].write(connect(f"{host}:443"))
    assert b"200" in await streams[0].readuntil(b"\r\n\r\n")


async def ended(streams: Streams) -> bool:
    async with asyncio.timeout(10):
        try:
            return await streams[0].read() == b""
        except ConnectionResetError:
            return True


async def test_a_narrower_policy_cuts_what_it_forbids_and_nothing_else(town: Town) -> None:
    await town.host("one.example", echo)
    await town.host("two.example", echo, address="93.184.216.35")
    door = await town.open(["one.example", "two.example"])
    async with town.client() as first, town.client() as second:
        await established(first, "one.example")
        await established(second, "two.example")
        door.switch(AllowList.parse(["two.example"]))
        assert await ended(first)
        second[1].write(b"still here")
        assert await second[0].readexactly(10) == b"still here"
        assert await town.status(connect("one.example:443")) == 403
        (cut, refused) = await town.recorded(2)
        assert (cut.host, cut.allowed, cut.reason) == ("one.example", True, "cut: the policy has changed")
        assert not refused.allowed
        door.switch(AllowList())
        assert await ended(second)
    door.switch(AllowList.parse(["one.example"]))
    async with town.client() as third:
        await established(third, "one.example")


async def test_a_flow_that_is_being_dialled_is_cut_as_well(town: Town) -> None:
    dialling, never = asyncio.Event(), asyncio.Event()
    town.names["slow.example"] = ["93.184.216.34"]

    async def dial(address: str, port: int) -> Streams:
        dialling.set()
        await never.wait()
        raise AssertionError

    town._dial = dial  # type: ignore[method-assign]
    door = await town.open(["slow.example"])
    async with town.client() as client:
        client[1].write(connect("slow.example:443"))
        await dialling.wait()
        door.switch(AllowList())
        assert await ended(client)
    (record,) = await town.recorded(1)
    assert record.reason.startswith("cut") and not record.allowed


async def test_closing_cuts_everything_at_once_and_can_be_done_twice(town: Town) -> None:
    await town.host("one.example", echo)
    door = await town.open(["one.example"])
    async with town.client() as busy, town.client() as idle:
        await established(busy, "one.example")
        async with asyncio.timeout(5):
            await door.close()
        assert await ended(busy) and await ended(idle)
    with pytest.raises(OSError):
        async with town.client():
            pass
    await door.close()
    assert [record.reason for record in town.journal.decisions] == ["cut: the door was closed"]
