"""One POST to a chat endpoint, answered whole or in pieces: what came back, whichever way the server chose to send it.

A server that was asked to stream may answer with plain JSON, and one that streams may declare another type: both are read as what they
are. Pieces are given on as they come; an empty piece of text says that those so far are void, because the turn is sampled again.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from etude.agent.policy.protocol import StreamCallback
from etude.agent.policy.refusal import error_of, status_of
from etude.agent.policy.wire.chat_assembly import ChatAssembly
from etude.agent.policy.wire.errors import ProviderError, WireError
from etude.agent.policy.wire.sse import EventReader, ServerSentEvent
from etude.core.redact.keys import mask_keys
from etude.core.trace.plain_json import fault_of

if TYPE_CHECKING:
    import httpx

# What a stream that is none raises; the turn may be asked for again.
STREAM_FAULTS = (WireError, ValidationError)
_SSE_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


@dataclass(frozen=True)
class Reply:
    """`body` is set where the status is 200 and it is a chat completion, or one that was streamed; else `text` has what came.
    `ended`: a stream gave the reason of its end."""

    status: int
    text: str = ""
    retry_after: str | None = None
    body: dict[str, Any] | None = None
    location: str = ""
    ended: bool = False


async def ask(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], headers: dict[str, str], on_delta: StreamCallback | None, *, trusting: bool = False
) -> Reply:  # fmt: skip
    """Raises httpx.TransportError, ProviderError for an error in a stream or in the body of a 200, and WireError for a stream that
    broke off or held something else. `trusting`: a stream's end counts as its turn's."""
    async with client.stream("POST", url, json=body, headers=headers) as response:
        if response.status_code != 200:
            await response.aread()
            location = response.headers.get("location", "")
            return Reply(response.status_code, response.text, response.headers.get("retry-after"), location=location)
        pieces = response.aiter_bytes()
        head = await _head(pieces)
        declared = "text/event-stream" in response.headers.get("content-type", "")
        if declared and not head.startswith((b"{", b"[")) or head.startswith(_SSE_STARTS):
            return await _streamed(head, pieces, on_delta, trusting)
        return _whole(head + b"".join([piece async for piece in pieces]))


async def _head(pieces: AsyncIterator[bytes]) -> bytes:
    """The first bytes, as many as tell a stream from JSON; blanks in front are left out."""
    head = b""
    async for piece in pieces:
        head = (head + piece).lstrip()
        if len(head) >= max(map(len, _SSE_STARTS)) or head.startswith((b"{", b"[", b":")):
            break
    return head


def _whole(data: bytes) -> Reply:
    """Raises ProviderError for an error as the body of a 200."""
    text = data.decode(errors="replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return Reply(200, text)
    if isinstance(body, dict) and body.get("choices"):
        return Reply(200, text, body=body)
    if (error := error_of(body)) is not None:
        raise ProviderError(status_of(body), error)
    if isinstance(body, dict) and "choices" in body:
        raise ProviderError(502, "the answer holds no choice")
    return Reply(200, text, body=body if isinstance(body, dict) else None)


async def _streamed(
    head: bytes, pieces: AsyncIterator[bytes], on_delta: StreamCallback | None, trusting: bool
) -> Reply:
    """A stream's turn. What was given on is taken back if the stream fails."""
    reader, turn, spoken = EventReader(), ChatAssembly(), False
    try:
        async for event in _events(reader, head, pieces):
            if event.data.strip() == "[DONE]":
                turn.done = True
                continue
            text, thinking = turn.add(_chunk(event))
            for part, piece in (("thinking", thinking), ("text", text)):
                if piece and on_delta is not None:
                    on_delta(part, piece)  # type: ignore[arg-type]
            spoken = spoken or bool(text or thinking)
        return Reply(200, body=turn.body(trusting=trusting), ended=turn.finish is not None)
    except BaseException:
        if spoken and on_delta is not None:
            on_delta("text", "")
        raise


async def _events(reader: EventReader, head: bytes, pieces: AsyncIterator[bytes]) -> AsyncIterator[ServerSentEvent]:
    for event in reader.feed(head):
        yield event
    async for received in pieces:
        for event in reader.feed(received):
            yield event
    for event in reader.end():
        yield event


def _chunk(event: ServerSentEvent) -> dict[str, Any]:
    """Raises WireError for what is no chunk, ProviderError for an error."""
    try:
        row = json.loads(event.data)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the stream holds no JSON: {mask_keys(event.data)[:200]!r}") from error
    if not isinstance(row, dict) or fault_of(row, finite=False) is not None:
        raise WireError(f"the stream holds no chunk: {mask_keys(event.data)[:200]!r}")
    if event.name == "error":
        raise ProviderError(status_of(row), error_of(row) or event.data)
    return row
