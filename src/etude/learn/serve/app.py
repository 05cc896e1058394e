"""The HTTP application of `etude serve`: routes, authorization, whole and streamed answers.

It runs on the event loop; the engine computes in its own thread. A client that leaves ends its answers, which frees their sessions.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from etude.agent.policy.protocol import PolicyError
from etude.agent.policy.protocol import Request as EngineRequest
from etude.agent.policy.wire import sse
from etude.agent.policy.wire.token_fields import listed_fields
from etude.agent.proxy.ask import ProxyRequestError
from etude.agent.proxy.body import Bodies, parse_body
from etude.agent.proxy.exchange import key_of
from etude.agent.proxy.server import LOOPBACK, HostGuard
from etude.core.trace.completion import Completion, SampledTokens
from etude.learn.serve.answer_reader import AnswerReader, ServedAnswer, first_tokens
from etude.learn.serve.engine_client import EngineClient, Generations
from etude.learn.serve.metrics import ServeMetrics
from etude.learn.serve.request import RefusedRequest, SamplingOptions, read_chat, read_text
from etude.learn.serve.served_model import ServedModel
from etude.learn.serve.wire_format import AnswerFormat, ChatFormat, CompletionFormat, as_json

# Longer bodies (a few milliseconds of tokenizing) are read in a thread, so that other answers keep flowing.
INLINE_BYTES = 16_000
JSON = "application/json"
READING = "/v1/chat/completions", "/v1/completions"


class EngineReading(Protocol):
    """Reads the engine's counters."""

    async def __call__(self) -> Mapping[str, float]: ...


@dataclass
class ServeState:
    """What all requests share. `api_key` "" lets everyone in."""

    model: ServedModel
    client: EngineClient
    engine_reading: EngineReading
    api_key: str = ""
    stopping: bool = False
    metrics: ServeMetrics = field(default_factory=ServeMetrics)
    bodies: Bodies = field(default_factory=Bodies)


@dataclass(frozen=True)
class EngineJob:
    """A request that is ready for the engine."""

    requests: Sequence[EngineRequest]
    format: AnswerFormat
    readers: Sequence[tuple[AnswerReader, Callable[[], str]]]
    options: SamplingOptions


def make_app(state: ServeState, hosts: frozenset[str] | None = LOOPBACK) -> FastAPI:
    """`hosts`: the names that requests may address; None for any."""
    app = FastAPI(openapi_url=None)
    if hosts is not None:
        app.add_middleware(HostGuard, hosts=hosts)
    app.add_exception_handler(404, _no_such_route)
    app.add_exception_handler(405, _no_such_route)
    for path, read in zip(READING, (_chat_job, _text_job), strict=True):
        app.add_api_route(path, _answering(state, path, read), methods=["POST"])
    _add_information(app, state)
    return app


def _add_information(app: FastAPI, state: ServeState) -> None:
    def row() -> dict[str, Any]:
        model = state.model
        common = {"object": "model", "created": 0, "owned_by": "etude"}
        chat = ("", "") if model.renderer is None else (model.renderer.fingerprint, model.renderer.name)
        return {"id": model.name, **common, "max_model_len": model.window, **listed_fields(*chat)}

    def information(read: Callable[[Request], Any]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            try:
                _authorize(state, request)
                return Response(as_json(read(request)), media_type=JSON)
            except RefusedRequest as refused:
                return _refusal(refused)

        return answer

    def one(request: Request) -> dict[str, Any]:
        _check_model(state, request.path_params["name"])
        return row()

    async def health(request: Request) -> Response:
        word = "stopping" if state.stopping else "ok" if state.client.alive else "the engine has failed"
        return Response(as_json({"status": word}), 200 if word == "ok" else 503, media_type=JSON)

    async def metrics(request: Request) -> Response:
        try:
            _authorize(state, request)
        except RefusedRequest as refused:
            return _refusal(refused)
        engine = await state.engine_reading() if state.client.alive else {}
        return Response(state.metrics.text(state.client.in_flight, engine), media_type="text/plain; version=0.0.4")

    app.add_api_route("/v1/models", information(lambda request: {"object": "list", "data": [row()]}), methods=["GET"])
    app.add_api_route("/v1/models/{name:path}", information(one), methods=["GET"])
    app.add_api_route("/health", health, methods=["GET"])
    app.add_api_route("/metrics", metrics, methods=["GET"])


def _authorize(state: ServeState, request: Request) -> None:
    if state.api_key and not hmac.compare_digest(key_of(request).encode(), state.api_key.encode()):
        raise RefusedRequest("the API key is missing or wrong; send Authorization: Bearer KEY", status=401)


def _check_model(state: ServeState, name: str) -> None:
    if name != state.model.name:
        raise RefusedRequest(
            f"the model {name[:80]!r} is not served here; use {state.model.name!r}", "model", status=404,
            code="model_not_found",
        )  # fmt: skip


def _chat_job(model: ServedModel, body: Mapping[str, Any]) -> EngineJob:
    question = read_chat(body)
    options = question.options
    prompts = [model.chat_prompt(question)] * options.choices
    form = ChatFormat(question.model, options, prompts, model.token_text, one_call=question.one_call)
    readers = [(model.chat_reader(question), str) for _ in prompts]
    return EngineJob(model.requests(prompts, options, "messages"), form, readers, options)


def _text_job(model: ServedModel, body: Mapping[str, Any]) -> EngineJob:
    question = read_text(body)
    options = question.options
    prompts = model.text_prompts(question)
    form = CompletionFormat(question.model, options, prompts, model.token_text)
    readers = [model.text_reader(options) for _ in prompts]
    return EngineJob(model.requests(prompts, options, "prompt"), form, readers, options)


def _answering(state: ServeState, path: str, read: Callable[[ServedModel, Mapping[str, Any]], EngineJob]) -> Any:
    async def answer(request: Request) -> Response:
        start = time.perf_counter()
        try:
            job = await _read(state, request, read)
            generations = state.client.start(job.requests, listens=job.options.stream or bool(job.options.stop))
        except RefusedRequest as refused:
            state.metrics.count(path, refused.status, 0.0)
            return _refusal(refused)
        collector = _Collector(state, path, job, generations, start)
        if job.options.stream:
            return AbortingStream(collector)
        return await _whole(request, collector)

    return answer


async def _read(
    state: ServeState, request: Request, read: Callable[[ServedModel, Mapping[str, Any]], EngineJob]
) -> EngineJob:
    """Raises RefusedRequest."""
    _authorize(state, request)
    if state.stopping:
        raise RefusedRequest("the server is stopping; use another", status=503, headers={"Retry-After": "5"})
    try:
        data = await state.bodies.read(request)
        body = parse_body(data)
    except ProxyRequestError as error:
        raise RefusedRequest(str(error), status=error.status) from error
    if isinstance(name := body.get("model"), str):
        _check_model(state, name)
    if len(data) < INLINE_BYTES:
        return read(state.model, body)
    return await asyncio.to_thread(read, state.model, body)


class _Collector:
    """The answers of one request, as chunks or as a whole."""

    def __init__(self, state: ServeState, path: str, job: EngineJob, generations: Generations, start: float) -> None:
        self._state, self._path, self._start = state, path, start
        self._job = job
        self._generations = generations
        self._answers: list[ServedAnswer | None] = [None] * len(job.requests)
        self._heard = False

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Raises RefusedRequest where the engine fails."""
        form = self._job.format
        for chunk in form.opening():
            yield chunk
        try:
            async for index, item in self._generations.events():
                for chunk in self._take(index, item):
                    yield chunk
        except PolicyError as error:
            raise RefusedRequest(str(error), status=503 if error.infra else 400) from error
        if self._job.options.stream_usage:
            yield form.usage_chunk(self._all())

    async def whole(self) -> dict[str, Any]:
        """Raises RefusedRequest where the engine fails."""
        try:
            async for index, item in self._generations.events():
                self._take(index, item)
        except PolicyError as error:
            raise RefusedRequest(str(error), status=503 if error.infra else 400) from error
        return self._job.format.whole(self._all())

    def abort(self) -> None:
        """Ends what is not over."""
        self._generations.abort_all()

    def end(self, status: int) -> None:
        """Counts the request."""
        metrics, answers = self._state.metrics, [answer for answer in self._answers if answer is not None]
        for answer in answers:
            metrics.prompt_tokens += answer.completion.usage.input_tokens
            metrics.cached_tokens += answer.completion.usage.cached_tokens
            metrics.completion_tokens += len(answer.tokens.ids)
        metrics.count(self._path, status, time.perf_counter() - self._start)

    def _take(self, index: int, item: SampledTokens | Completion) -> list[dict[str, Any]]:
        if not self._heard:
            self._heard = True
            self._state.metrics.first_token_s.observe(time.perf_counter() - self._start)
        reader, rest = self._job.readers[index]
        form, before, streams = self._job.format, reader.count, self._job.options.stream
        if isinstance(item, SampledTokens):
            pieces = reader.add(item.ids)
            if reader.stopped:
                self._generations.abort(index)
            chunk = form.step(index, pieces, first_tokens(item, reader.count - before)) if streams else None
            return [] if chunk is None else [chunk]
        if item.problem or (item.finish == "abort" and not reader.stopped):
            raise RefusedRequest(item.problem or "the answer was given up; repeat the request", status=500)
        assert item.tokens is not None
        pieces, answer = reader.close(item, rest)
        self._answers[index] = answer
        if not streams:
            return []
        step = form.step(index, pieces, first_tokens(item.tokens, reader.count, before))
        return [*([] if step is None else [step]), *form.closing(index, answer)]

    def _all(self) -> list[ServedAnswer]:
        return [answer for answer in self._answers if answer is not None]


class AbortingStream(StreamingResponse):
    """Server-sent events; the answers end with the connection."""

    def __init__(self, collector: _Collector) -> None:
        self._collector = collector
        self._status = 499  # until the last event is sent
        super().__init__(self._events(), media_type="text/event-stream", headers={"cache-control": "no-cache"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._collector.abort()
            self._collector.end(self._status)

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._collector.chunks():
                yield b"data: " + as_json(chunk) + b"\n\n"
            self._status = 200
        except RefusedRequest as refused:
            self._status = refused.status
            yield b"data: " + as_json(refused.body()) + b"\n\n"
        yield sse.DONE


async def _whole(request: Request, collector: _Collector) -> Response:
    """The answer, or 499 when the client has left."""
    work = asyncio.ensure_future(collector.whole())
    gone = asyncio.ensure_future(_gone(request))
    status = 499
    try:
        await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            return Response(status_code=status)
        body = work.result()
        status = 200
        return Response(as_json(body), media_type=JSON)
    except RefusedRequest as refused:
        status = refused.status
        return _refusal(refused)
    finally:
        gone.cancel()
        work.cancel()
        collector.abort()
        collector.end(status)


async def _gone(request: Request) -> None:
    """Returns when the client has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _refusal(refused: RefusedRequest) -> Response:
    return Response(as_json(refused.body()), refused.status, refused.headers, JSON)


async def _no_such_route(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    known = "POST /v1/chat/completions, POST /v1/completions, GET /v1/models, GET /health and GET /metrics"
    return _refusal(
        RefusedRequest(f"{request.method} {request.url.path[:80]} is not served; use {known}", status=status)
    )
