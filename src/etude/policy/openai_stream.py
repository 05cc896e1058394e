"""One POST to a chat endpoint, answered whole or in pieces: what came back, whichever way the server chose to send it.

A server that was asked to stream may answer with plain JSON; it is read as what it is. Pieces are told as they come; an empty
piece of text says that what was told so far is void, because the turn is sampled anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from etude.policy.protocol import Told
from etude.policy.wire.chat_stream import ChatAssembly
from etude.policy.wire.errors import WireError
from etude.policy.wire.sse import EventReader
from etude.redact.keys import masked

if TYPE_CHECKING:
    import httpx

# What a stream that is none raises; the turn may be asked for again.
STREAM_FAULTS = (WireError, ValidationError)


@dataclass(frozen=True)
class Reply:
    """`body` is set where the status is 200 and it is a chat completion, or one that was streamed; else `text` has what came."""

    status: int
    text: str = ""
    retry_after: str | None = None
    body: dict[str, Any] | None = None


async def ask(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], headers: dict[str, str], told: Told | None
) -> Reply:
    """Raises httpx.TransportError, and WireError for a stream that broke off or held something else."""
    if told is None:
        return _whole(await client.post(url, json=body, headers=headers))
    streamed = body | {"stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", url, json=streamed, headers=headers) as response:
        if response.status_code == 200 and "text/event-stream" in response.headers.get("content-type", ""):
            return Reply(200, body=await _assembled(response, told))
        await response.aread()
        return _whole(response)


def _whole(response: httpx.Response) -> Reply:
    body = None
    if response.status_code == 200:
        try:
            body = response.json()
        except ValueError:
            body = None
    return Reply(response.status_code, response.text, response.headers.get("retry-after"), body)


async def _assembled(response: httpx.Response, told: Told) -> dict[str, Any]:
    """A stream's turn. What was told is taken back if the stream fails."""
    reader, turn, spoken = EventReader(), ChatAssembly(), False
    try:
        async for received in response.aiter_bytes():
            for event in reader.feed(received):
                if event.data.strip() == "[DONE]":
                    continue
                text, thinking = turn.add(_chunk(event.data))
                if thinking:
                    told("thinking", thinking)
                if text:
                    told("text", text)
                spoken = spoken or bool(text or thinking)
        return turn.body()
    except BaseException:
        if spoken:
            told("text", "")
        raise


def _chunk(data: str) -> dict[str, Any]:
    try:
        row = json.loads(data)
    except ValueError as error:
        raise WireError(f"the stream holds no JSON: {masked(data)[:200]!r}") from error
    if not isinstance(row, dict):
        raise WireError(f"the stream holds no chunk: {masked(data)[:200]!r}")
    return row
