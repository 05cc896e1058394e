"""One HTTP request of an agent: read, answered or refused, whole or as a stream.

A stream begins with the first piece that the policy has, or when that takes long; it is kept alive by comments, and an error
then arrives within it. Calls come at its end: they are read from whole turns.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from etude.agent.policy.protocol import PolicyError
from etude.agent.policy.wire.answer_stream import AnswerStream, TurnPart
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.body import parse_body
from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.dialect.protocol import Dialect
from etude.agent.proxy.retries import PendingAnswer, Signs
from etude.agent.proxy.session import CaptureSession
from etude.agent.proxy.telling import TurnDeltas
from etude.core.trace.completion import Completion

# Within this many seconds an error is still an HTTP status; then a stream begins, and says this often that it lives.
PATIENCE_S = 10.0
PING = b": ping\n\n"


async def exchange(request: Request, dialect: Dialect, book: SessionRegistry) -> Response:
    """The response to one request for a turn."""
    try:
        session = book.of_key(key_of(request))
        if session.ended:
            raise ProxyRequestError(f"the session {session.id} has ended; make another with POST /sessions", 409)
        data = await book.bodies.read(request)
        ask = dialect.read(parse_body(data), book.settings.allowed)
        source = {"dialect": dialect.name, "agent": request.headers.get("user-agent", "")}

        def sample(telling: TurnDeltas) -> Coroutine[Any, Any, Completion]:
            return session.answer(ask, source, telling if ask.stream else None)

        sampling = session.retries.join(_signs(request, dialect, data), sample)
    except ProxyRequestError as refused:
        return _refusal(dialect, refused)
    number = f"{session.id}-{sampling.number}"
    gone = asyncio.ensure_future(_gone(request))
    try:
        await _something(sampling, gone, ask)
    except asyncio.CancelledError:
        session.retries.leave(sampling, delivered=False)
        raise
    finally:
        gone.cancel()
    begun = _answered(sampling) or not sampling.task.done()
    if ask.stream and begun and not _came(gone):
        events = _events(session, sampling, dialect, ask, number)
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-cache"})
    return _whole(session, sampling, dialect, ask, number)


def key_of(request: Request) -> str:
    """The key of a request, as either SDK sends it."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")


def _signs(request: Request, dialect: Dialect, data: bytes) -> Signs:
    count = request.headers.get("x-stainless-retry-count", "0")
    return Signs(
        hashlib.sha256(dialect.name.encode() + data).hexdigest(),
        request.headers.get("idempotency-key", ""),
        retried=count.isdecimal() and int(count) > 0,
    )


def _answered(sampling: PendingAnswer) -> bool:
    return sampling.task.done() and not sampling.failed


def _came(gone: asyncio.Future[None]) -> bool:
    return gone.done() and not gone.cancelled()


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection: behind the body nothing else is received."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _whole(session: CaptureSession, sampling: PendingAnswer, dialect: Dialect, ask: Ask, number: str) -> Response:
    """Called when the sampling is done, or the client is gone: who then hears this does not matter."""
    if not sampling.task.done():
        session.retries.leave(sampling, delivered=False)
        return Response(status_code=499)
    session.retries.leave(sampling, delivered=True)
    outcome = _outcome(sampling)
    if isinstance(outcome, ProxyRequestError):
        return _refusal(dialect, outcome)
    return JSONResponse(dialect.answer(outcome, id=number, ask=ask))


async def _something(sampling: PendingAnswer, gone: asyncio.Future[None], ask: Ask) -> None:
    """Waits for the answer, for the client to leave, and for a stream also for its first piece, but not for ever."""
    if not ask.stream:
        await asyncio.wait((sampling.task, gone), return_when=asyncio.FIRST_COMPLETED)
    elif not sampling.telling.pieces:
        await _news(sampling, gone)


async def _news(sampling: PendingAnswer, *others: asyncio.Future[None]) -> bool:
    """Waits for the next piece or the end; False if neither comes in time."""
    more = asyncio.ensure_future(sampling.telling.news.wait())
    try:
        waited = (sampling.task, more, *others)
        done, _ = await asyncio.wait(waited, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        more.cancel()
    return bool(done)


async def _events(
    session: CaptureSession, sampling: PendingAnswer, dialect: Dialect, ask: Ask, number: str
) -> AsyncIterator[bytes]:
    delivered = False
    stream = AnswerStream(dialect.stream(id=number, ask=ask))
    try:
        async for piece in _pieces(sampling):
            yield b"".join(map(dialect.frame, stream.piece(*piece))) if piece else PING
        outcome = _outcome(sampling)
        if isinstance(outcome, ProxyRequestError):
            yield dialect.broken(outcome.status, str(outcome))
        else:
            yield b"".join(map(dialect.frame, stream.close(outcome))) + dialect.ended
        delivered = True
    except StreamInvalidated:
        yield dialect.broken(503, "the turn broke off and was started again; repeat the request to get the same turn")
    finally:
        session.retries.leave(sampling, delivered=delivered)


class StreamInvalidated(Exception):
    """Pieces that a client was sent are no longer those of the turn."""


async def _pieces(sampling: PendingAnswer) -> AsyncIterator[tuple[TurnPart, str] | None]:
    """The pieces of a turn until it is over; None, now and then, where there are none. Raises Voided."""
    sent, attempt, telling = 0, sampling.telling.attempt, sampling.telling
    if not telling.pieces and not sampling.task.done():
        yield None
    while True:
        if telling.attempt != attempt:
            if sent:
                raise StreamInvalidated
            attempt = telling.attempt
        while sent < len(telling.pieces):
            sent += 1
            yield telling.pieces[sent - 1]
            if telling.attempt != attempt:
                raise StreamInvalidated
        if sampling.task.done():
            return
        if not await _news(sampling):
            yield None


def _outcome(sampling: PendingAnswer) -> Completion | ProxyRequestError:
    """What a sampling that is over came to. An infra fault is 503: SDKs then try again. What the upstream endpoint refuses as the
    client's (a key, a model's name, a field) is refused with its status and words: to try again would not help."""
    if sampling.task.cancelled():
        return ProxyRequestError("the session ended before this was answered", 409)
    error = sampling.task.exception()
    if error is None:
        return sampling.task.result()
    if isinstance(error, PolicyError):
        if error.status is not None and 400 <= error.status < 500:
            return ProxyRequestError(error.refusal or str(error), error.status)
        return ProxyRequestError(str(error), 503 if error.infra else 400)
    if isinstance(error, OSError):
        return ProxyRequestError(f"the session can't be written, so this turn is not given out: {error}", 500)
    if isinstance(error, ProxyRequestError):
        return error
    raise error


def _refusal(dialect: Dialect, refused: ProxyRequestError) -> Response:
    return JSONResponse(dialect.error(refused.status, str(refused)), refused.status)
