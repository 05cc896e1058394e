"""What goes through a door and what does not, over real sockets. Test 36 of docs/sandbox.md throughout."""

from __future__ import annotations

import asyncio

import pytest
from egress_town import PUBLIC, Town, Web, connect, echo, get


async def test_a_tunnel_to_a_listed_host_carries_bytes_both_ways(town: Town) -> None:
    await town.host("good.example", echo)
    await town.open(["good.example"])
    async with town.client() as (reader, writer):
        writer.write(connect("GOOD.example:443") + b"early ")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        writer.write(b"late")
        assert await reader.readexactly(10) == b"early late"
        writer.write_eof()
        assert await reader.read() == b""
    (record,) = await town.recorded(1)
    assert (record.method, record.host, record.port, record.allowed) == ("CONNECT", "good.example", 443, True)
    assert (record.up_bytes, record.down_bytes, record.status, record.sandbox) == (10, 10, 200, "sb-test")
    assert record.reason == "" and record.duration_s > 0


async def test_a_plain_request_is_written_again_for_the_upstream(town: Town) -> None:
    web = Web()
    await town.host("good.example", web, port=80)
    await town.open(["good.example"])
    answer = await town.say(
        get("http://good.example/a?b=1", "good.example", "Proxy-Connection: keep-alive", "X-Mine: 1", "Upgrade: h2c")
    )
    assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hello")
    head = web.heard.lower()
    assert head.startswith(b"get /a?b=1 http/1.1\r\nhost: good.example\r\n") and b"x-mine: 1" in head
    assert b"proxy-connection" not in head and b"upgrade" not in head
    (record,) = await town.recorded(1)
    assert (record.method, record.path, record.status, record.down_bytes) == ("GET", "/a?b=1", 200, 5)


async def test_bodies_and_several_requests_pass_over_one_connection(town: Town) -> None:
    web = Web()
    await town.host("good.example", web, port=80)
    await town.open(["good.example"])
    chunked = b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n"
    sized = b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\n\r\nabc"
    async with town.client() as (reader, writer):
        writer.write(chunked + sized)  # pipelined: taken one after the other
        for _ in range(2):
            await reader.readuntil(b"hello")
    assert b"four" in web.heard and web.heard.endswith(b"abc")
    assert [record.up_bytes for record in await town.recorded(2)] == [4, 3]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (connect("other.example:443"), 403),
        (connect("sub.good.example:443"), 403),
        (connect("good.example:22"), 403),
        (connect("good.example"), 400),
        (connect("good.example.:443"), 400),
        (connect("user@good.example:443"), 400),
        (connect("127.0.0.1:443"), 403),
        (connect("127.1:443"), 403),
        (connect("0x7f000001:443"), 403),
        (connect("2130706433:443"), 403),
        (connect("[::1]:443"), 403),
        (connect("[::ffff:127.0.0.1]:443"), 403),
        (connect("169.254.169.254:80"), 403),
        (connect("localhost:443"), 403),
        (get("http://OTHER.example/", "OTHER.example"), 403),
        (get("http://good.example@other.example/", "other.example"), 400),
        (get("http://good.example/", "other.example"), 400),
        (get("https://good.example/", "good.example"), 400),
        (get("ftp://good.example/", "good.example"), 400),
        (get("/", "good.example"), 404),
        (get("*", "good.example", method="OPTIONS"), 400),
        (b"GET http://good.example/ HTTP/1.1\r\n\r\n", 400),
        (b"GARBAGE\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET http://good.example/ HTTP/2.0\r\nHost: good.example\r\n\r\n", 505),
    ],
)
async def test_what_is_not_listed_or_not_plain_is_refused_and_recorded(town: Town, raw: bytes, status: int) -> None:
    await town.host("good.example", echo)
    await town.open(["good.example"])
    assert await town.status(raw) == status
    (record,) = await town.recorded(1)
    assert not record.allowed and record.reason and record.status == status
    assert town.dialled == []


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.0.0.7", "::1", "::ffff:127.0.0.1", "fe80::1"])
async def test_a_listed_name_that_leads_inside_is_refused(town: Town, address: str) -> None:
    town.names["good.example"] = [address]
    await town.open(["good.example"])
    assert await town.status(connect("good.example:443")) == 403
    (record,) = await town.recorded(1)
    assert not record.allowed and address in record.reason and town.dialled == []


async def test_one_forbidden_address_among_good_ones_refuses_the_name(town: Town) -> None:
    town.names["good.example"] = [PUBLIC, "127.0.0.1"]
    await town.open(["good.example"])
    assert await town.status(connect("good.example:443")) == 403
    assert town.dialled == []


async def test_a_name_is_resolved_once_and_what_was_looked_at_is_dialled(town: Town) -> None:
    await town.host("good.example", echo)
    asked = []
    resolve = town._resolve

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return await resolve(host, port) if len(asked) == 1 else ["127.0.0.1"]

    town._resolve = rebinding  # type: ignore[method-assign]
    await town.open(["good.example"])
    async with town.client() as (reader, writer):
        writer.write(connect("good.example:443"))
        assert b"200" in await reader.readline()
    assert asked == ["good.example"] and town.dialled == [(PUBLIC, 443)]


async def test_hosts_that_are_not_there_are_distinguished_from_forbidden_ones(town: Town) -> None:
    town.names["down.example"] = [PUBLIC]
    await town.open(["down.example", "nowhere.example"])
    assert await town.status(connect("down.example:443")) == 502
    assert await town.status(connect("nowhere.example:443")) == 502
    reasons = [record.reason for record in await town.recorded(2)]
    assert "can't be reached" in reasons[0] and "can't be resolved" in reasons[1]


async def test_an_upstream_that_breaks_the_protocol_is_a_502(town: Town) -> None:
    await town.host("good.example", Web(b"nonsense\r\n\r\n"), port=80)
    await town.open(["good.example"])
    assert await town.status(get("http://good.example/", "good.example")) == 502


async def test_an_answer_that_breaks_off_reaches_the_client_as_broken(town: Town) -> None:
    await town.host("good.example", Web(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello"), port=80)
    await town.open(["good.example"])
    assert (await town.say(get("http://good.example/", "good.example"))).endswith(b"hello")
    (record,) = await town.recorded(1)
    assert record.status == 502 and record.down_bytes == 5


async def test_an_upstream_that_never_answers_ends_in_time(town: Town) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    from etude.sandbox.egress.limits import ProxyLimits

    town.limits = ProxyLimits(idle_s=0.3)
    await town.host("good.example", silent, port=80)
    await town.host("tunnel.example", silent, port=443, address="93.184.216.35")
    await town.open(["good.example", "tunnel.example"])
    assert await town.status(get("http://good.example/", "good.example")) == 504
    async with town.client() as (reader, writer):
        writer.write(connect("tunnel.example:443"))
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
    assert [record.status for record in await town.recorded(2)] == [504, 408]
