"""Requests that two parsers could read as two different ones are refused before anything is dialled. Test 36 of docs/sandbox.md throughout."""

from __future__ import annotations

import pytest
from egress_town import Town, Web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

START = b"POST http://good.example/ HTTP/1.1\r\nHost: good.example\r\n"
HEADS = {
    "both lengths": START + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": START + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "one length twice": START + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "a list of lengths": START + b"Content-Length: 5, 6\r\n\r\nabcdef",
    "a signed length": START + b"Content-Length: +5\r\n\r\nabcde",
    "two encodings": START + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an odd encoding": START + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a hidden encoding": START + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "an encoding in 1.0": START.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": START + b"X-A: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a bare line feed": START + b"X-A: 1\nContent-Length: 5\r\n\r\nabcde",
    "a bare carriage return": START + b"X-A: 1\rContent-Length: 5\r\n\r\nabcde",
    "a zero byte": START + b"X-A: 1\0\r\n\r\n",
    "two hosts": START + b"Host: other.example\r\n\r\n",
    "a space in the target": b"GET http://good.example/ http://other.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
    "a tunnel with a body": b"CONNECT good.example:80 HTTP/1.1\r\nHost: good.example\r\nContent-Length: 4\r\n\r\nabcd",
    "a tunnel in chunks": b"CONNECT good.example:80 HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
}
CHUNKS = {
    "no number": b"zz\r\nabc\r\n0\r\n\r\n",
    "a sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "too short": b"5\r\nabc\r\n0\r\n\r\n",
    "too long": b"2\r\nabc\r\n0\r\n\r\n",
    "a huge size": b"ffffffffffffffffffffff\r\nabc",
    "no end": b"3\r\nabc\r\n",
}


@pytest.mark.parametrize("name", HEADS)
async def test_a_head_with_two_readings_is_refused(town: Town, name: str) -> None:
    web = Web()
    await town.host("good.example", web, port=80)
    await town.open(["good.example"])
    assert await town.status(HEADS[name]) in (400, 501)
    (record,) = await town.recorded(1)
    assert not record.allowed and town.dialled == [] and web.heard == b""


@pytest.mark.parametrize("name", CHUNKS)
async def test_broken_chunks_never_make_a_whole_request(town: Town, name: str) -> None:
    web = Web()
    await town.host("good.example", web, port=80)
    await town.open(["good.example"])
    assert await town.status(START + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS[name]) == 400
    (record,) = await town.recorded(1)
    assert "malformed body" in record.reason and not web.heard.endswith(b"0\r\n\r\n")


async def test_what_follows_a_refused_request_is_never_read_as_another(town: Town) -> None:
    web = Web()
    await town.host("good.example", web, port=80)
    await town.open(["good.example"])
    second = b"GET http://good.example/second HTTP/1.1\r\nHost: good.example\r\n\r\n"
    assert (await town.say(HEADS["both lengths"] + second)).count(b"HTTP/1.1") == 1
    assert len(await town.recorded(1)) == 1 and web.heard == b""


async def test_a_connection_header_can_not_talk_a_length_away(town: Town) -> None:
    web = Web()
    await town.host("good.example", web, port=80)
    await town.open(["good.example"])
    await town.say(START + b"Connection: content-length, host, x-a\r\nX-A: 1\r\nContent-Length: 3\r\n\r\nabc")
    head = web.heard.lower()
    assert b"content-length: 3" in head and b"host: good.example" in head and b"x-a" not in head


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200))
async def test_any_bytes_get_an_answer_or_an_end(town: Town, data: bytes) -> None:
    if town.port == 0:
        await town.open([])
    answer = await town.say(data + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4") or answer.startswith(b"HTTP/1.1 5")
    assert town.dialled == []
