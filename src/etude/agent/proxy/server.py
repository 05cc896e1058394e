"""The HTTP server: POST /v1/chat/completions, /v1/messages and /v1/responses for agents, what their SDKs ask in addition to turns
(models, counts of tokens), and /sessions for those who run them.

Made for one machine: it listens on loopback, and refuses requests that name another host (a web page that had its own name
point here). On any other address sessions are made and ended with an operator's key alone.
"""

from __future__ import annotations

import hmac
import json
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from etude.agent.chat.renderer import Renderer, RenderError
from etude.agent.policy.protocol import served_chat_of
from etude.agent.policy.wire.errors import openai_error
from etude.agent.policy.wire.token_fields import listed_fields
from etude.agent.proxy.ask import Ask, ProxyRequestError
from etude.agent.proxy.body import parse_body
from etude.agent.proxy.book import SessionRegistry
from etude.agent.proxy.dialect.anthropic import AnthropicDialect
from etude.agent.proxy.dialect.chat import ChatDialect
from etude.agent.proxy.dialect.protocol import Dialect
from etude.agent.proxy.dialect.responses import ResponsesDialect
from etude.agent.proxy.exchange import exchange, key_of
from etude.agent.proxy.tokens import aside

# How many tokens a conversation has, for agents that plan by it: nothing is sampled, recorded or kept.


# Without the model's tokenizer tokens can only be estimated: code and English text have some four bytes a token in every large
# vocabulary, and an agent that plans its compaction by this gets a number of the right size.
BYTES_PER_TOKEN = 4


async def prompt_tokens(ask: Ask, renderer: Renderer | None) -> int:
    """The prompt's tokens in the model's format; without one an estimate. Raises Refused for what the format can't hold."""
    if renderer is None:
        said = json.dumps([[message.to_json() for message in ask.messages], ask.tools], ensure_ascii=False)
        return -(-len(said.encode()) // BYTES_PER_TOKEN)
    try:
        return len(await aside(ask.messages, renderer.at_effort(ask.effort).render, ask.messages, ask.tools))
    except RenderError as error:
        raise ProxyRequestError(f"the model's chat format can't hold this request: {error}") from error


LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
DIALECTS: dict[str, Dialect] = {
    "/v1/chat/completions": ChatDialect(),
    "/v1/messages": AnthropicDialect(),
    "/v1/responses": ResponsesDialect(),
}


def make_app(book: SessionRegistry, *, operator_key: str = "", hosts: frozenset[str] | None = LOOPBACK) -> FastAPI:
    """The application. Without an operator's key anyone who reaches it may make a session; without `hosts` it answers to any
    name."""
    app = FastAPI(openapi_url=None)
    if hosts is not None:
        app.add_middleware(HostGuard, hosts=hosts)
    app.add_exception_handler(ProxyRequestError, _refused)
    for path, dialect in DIALECTS.items():
        app.add_api_route(path, _turns(dialect, book), methods=["POST"])
    _sessions(app, book, operator_key)
    _models(app, book)
    _counts(app, book, AnthropicDialect())
    return app


class HostGuard:
    """Refuses requests that name another host than ours."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = (Request(scope).url.hostname or "") if scope["type"] == "http" else None
        if name is None or name in self._hosts:
            return await self._app(scope, receive, send)
        message = f"this endpoint is {' or '.join(sorted(self._hosts))}, not {name!r}; use that address"
        await JSONResponse(openai_error(403, message), 403)(scope, receive, send)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProxyRequestError)
    return JSONResponse(openai_error(error.status, str(error)), error.status)


def _turns(dialect: Dialect, book: SessionRegistry) -> Any:
    async def turn(request: Request) -> Response:
        return await exchange(request, dialect, book)

    return turn


def _models(app: FastAPI, book: SessionRegistry) -> None:
    """Who answers, in one shape that both makers' SDKs read. Any name is answered, hence found."""

    def row(name: str) -> dict[str, Any]:
        ours = {"object": "model", "created": 0, "owned_by": "etude"}
        chat = (book.renderer.fingerprint, book.renderer.name) if book.renderer else (served_chat_of(book.policy), "")
        listed = listed_fields(*chat) if chat[0] else {}
        made = {"display_name": name, "created_at": "1970-01-01T00:00:00Z"}
        return {"id": name, **ours, "type": "model", **made, **listed}

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        name = book.policy.name
        return {"object": "list", "data": [row(name)], "has_more": False, "first_id": name, "last_id": name}

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return row(name)

    @app.head("/")
    async def here() -> Response:
        """Some agents look whether anybody is there before they ask."""
        return Response()


def _counts(app: FastAPI, book: SessionRegistry, dialect: AnthropicDialect) -> None:
    @app.post("/v1/messages/count_tokens")
    async def count(request: Request) -> Response:
        try:
            book.of_key(key_of(request))
            ask = dialect.counted(parse_body(await book.bodies.read(request)), book.settings.allowed)
            return JSONResponse({"input_tokens": await prompt_tokens(ask, book.renderer)})
        except ProxyRequestError as refused:
            return JSONResponse(dialect.error(refused.status, str(refused)), refused.status)


def _sessions(app: FastAPI, book: SessionRegistry, operator_key: str) -> None:
    def operates(request: Request) -> bool:
        return hmac.compare_digest(key_of(request).encode(), operator_key.encode())

    @app.post("/sessions")
    async def make(request: Request) -> dict[str, str]:
        if operator_key and not operates(request):
            raise ProxyRequestError(
                "sessions of this endpoint are made with its operator's key (ETUDE_CAPTURE_KEY)", 401
            )
        body = parse_body(await book.bodies.read(request))
        if unknown := body.keys() - {"task_id"}:
            raise ProxyRequestError(f"POST /sessions knows no field {min(unknown)!r}; task_id is the only one")
        session, key = book.open(str(body.get("task_id") or ""))
        root = str(request.base_url).rstrip("/")
        return {"id": session.id, "key": key, "openai_base_url": f"{root}/v1", "anthropic_base_url": root}

    def mine(request: Request, id: str) -> Any:
        session = book.of_id(id)
        if not (operator_key and operates(request)) and book.of_key(key_of(request)) is not session:
            raise ProxyRequestError(f"this key belongs to another session than {id}", 403)
        return session

    @app.get("/sessions/{id}")
    async def show(request: Request, id: str) -> dict[str, Any]:
        session = mine(request, id)
        return session.summary or {"session": id, "file": str(session.path), **session.counters()}

    @app.post("/sessions/{id}/end")
    async def end(request: Request, id: str) -> dict[str, Any]:
        return await mine(request, id).end()
