"""Bytes both ways between two connections until both ends are done: what a CONNECT becomes.

A side that does not read makes the other wait (bounded buffers); the end of one direction is passed on while the other goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from etude.sandbox.egress.outside import STREAM_BYTES, Streams
from etude.sandbox.egress.refused import Refused


async def join(inner: Streams, outer: Streams, count: Callable[[int, int], None], idle_s: float) -> None:
    """`count(up, down)` is told of every piece. Raises Refused after `idle_s` without one, OSError when a side breaks."""
    loop = asyncio.get_running_loop()
    last_s = loop.time()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upwards: bool) -> None:
        nonlocal last_s
        while data := await reader.read(STREAM_BYTES):
            writer.write(data)
            await writer.drain()
            last_s = loop.time()
            count(len(data) if upwards else 0, 0 if upwards else len(data))
        writer.write_eof()

    pumps = {
        asyncio.ensure_future(pump(inner[0], outer[1], True)),
        asyncio.ensure_future(pump(outer[0], inner[1], False)),
    }
    pending = set(pumps)
    try:
        while pending:
            left_s = last_s + idle_s - loop.time()
            if left_s <= 0:
                raise Refused(408, f"not a byte for {idle_s:g} s")
            done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    finally:
        for one in pumps:
            one.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
