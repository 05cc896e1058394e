"""One HTTP request of an agent: read, answered or refused, whole or as a stream.

An answer is sampled whole before its first word is sent: calls are parsed from whole turns. A stream that has to wait is kept
alive by comments, and an error then arrives within it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from etude.capture.ask import Ask, Refused
from etude.capture.book import Book
from etude.capture.dialect.protocol import Dialect
from etude.capture.retries import Sampling, Signs
from etude.capture.session import CaptureSession
from etude.policy.protocol import PolicyError
from etude.trace.completion import Completion

# Within this many seconds an error is still an HTTP status; then a stream begins, and says this often that it lives.
PATIENCE_S = 10.0
# A conversation of a million tokens is some megabytes of text.
MAX_BODY_BYTES = 64 << 20
WAITING = b": waiting for the policy\n\n"


async def exchange(request: Request, dialect: Dialect, book: Book) -> Response:
    """The response to one request for a turn."""
    try:
        session = book.of_key(key_of(request))
        if session.ended:
            raise Refused(f"the session {session.id} has ended; make another with POST /sessions", 409)
        data = await read_body(request)
        ask = dialect.read(parsed(data), book.settings.allowed)
        source = {"dialect": dialect.name, "agent": request.headers.get("user-agent", "")}
        sampling = session.retries.join(_signs(request, dialect, data), lambda: session.answer(ask, source))
    except Refused as refused:
        return _refusal(dialect, refused)
    number = f"{session.id}-{sampling.number}"
    gone = asyncio.ensure_future(_gone(request))
    try:
        patience_s = PATIENCE_S if ask.stream else None
        await asyncio.wait((sampling.task, gone), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        session.retries.leave(sampling, delivered=False)
        raise
    finally:
        gone.cancel()
    if ask.stream and (_answered(sampling) or not sampling.task.done()) and not _came(gone):
        events = _events(session, sampling, dialect, ask, number)
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
    return _whole(session, sampling, dialect, ask, number)


def key_of(request: Request) -> str:
    """The key of a request, as either SDK sends it."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


async def read_body(request: Request) -> bytes:
    """The body. Raises Refused for one that is too long, and for one sent as another type than JSON: a web page may send those to
    any address without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(f"the content-type is {kind or 'missing'}; send application/json", 415)
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BODY_BYTES:
            raise Refused(f"the body is longer than {MAX_BODY_BYTES >> 20} MiB; shorten the conversation", 413)
    return bytes(data)


def parsed(data: bytes) -> dict[str, Any]:
    """A body. Raises Refused for what is no JSON object."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise Refused(f"the body is a JSON {type(body).__name__}; send an object")
    return body


def _signs(request: Request, dialect: Dialect, data: bytes) -> Signs:
    count = request.headers.get("x-stainless-retry-count", "0")
    return Signs(
        hashlib.sha256(dialect.name.encode() + data).hexdigest(),
        request.headers.get("idempotency-key", ""),
        retried=count.isdecimal() and int(count) > 0,
    )


def _answered(sampling: Sampling) -> bool:
    return sampling.task.done() and not sampling.failed


def _came(gone: asyncio.Future[None]) -> bool:
    return gone.done() and not gone.cancelled()


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection: behind the body nothing else is received."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _whole(session: CaptureSession, sampling: Sampling, dialect: Dialect, ask: Ask, number: str) -> Response:
    """Called when the sampling is done, or the client is gone: who then hears this does not matter."""
    if not sampling.task.done():
        session.retries.leave(sampling, delivered=False)
        return Response(status_code=499)
    session.retries.leave(sampling, delivered=True)
    told = _outcome(sampling)
    if isinstance(told, Refused):
        return _refusal(dialect, told)
    return JSONResponse(dialect.answer(told, id=number, ask=ask))


async def _events(
    session: CaptureSession, sampling: Sampling, dialect: Dialect, ask: Ask, number: str
) -> AsyncIterator[bytes]:
    delivered = False
    try:
        while not sampling.task.done():
            yield WAITING
            await asyncio.wait((sampling.task,), timeout=PATIENCE_S)
        told = _outcome(sampling)
        if isinstance(told, Refused):
            yield dialect.broken(told.status, str(told))
        else:
            for event in dialect.stream(told, id=number, ask=ask):
                yield event
        delivered = True
    finally:
        session.retries.leave(sampling, delivered=delivered)


def _outcome(sampling: Sampling) -> Completion | Refused:
    """What a sampling that is over came to. An infra fault is 503: SDKs then try again."""
    if sampling.task.cancelled():
        return Refused("the session ended before this was answered", 409)
    error = sampling.task.exception()
    if error is None:
        return sampling.task.result()
    if isinstance(error, PolicyError):
        return Refused(str(error), 503 if error.infra else 400)
    if isinstance(error, OSError):
        return Refused(f"the session can't be written, so this turn is not given out: {error}", 500)
    if isinstance(error, Refused):
        return error
    raise error


def _refusal(dialect: Dialect, refused: Refused) -> Response:
    return JSONResponse(dialect.error(refused.status, str(refused)), refused.status)
