"""Any OpenAI-compatible endpoint as a text policy. Overload and network trouble are retried with backoff; what remains is
told apart: a request the model can't take (too long, filtered) is evidence, all else (keys, names, outages) is ours."""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import time
from typing import TYPE_CHECKING, Any

from etude.policy.openai_stream import STREAM_FAULTS, Reply, ask
from etude.policy.protocol import PolicyError, Request, Told
from etude.policy.wire.chat import from_wire, to_wire
from etude.redact.keys import api_key, bearer, masked
from etude.trace.completion import Completion, Usage
from etude.trace.message import Message

if TYPE_CHECKING:
    import httpx

RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Waits of 0.5, 1, 2, 4, 8 s (times 0.5-1.5): 15 s bridge a restart or a burst, longer outages are for the caller.
FIRST_WAIT_S = 0.5
# A server may ask for more than we are ready to wait within one turn.
MAX_WAIT_S = 60.0
# What providers say when the conversation itself is the trouble.
_REQUEST_FAULTS = (
    "context_length",
    "context length",
    "context size",
    "context window",
    "maximum context",
    "reduce the length",
    "too long",
    "too many tokens",
    "content_filter",
)
# What servers that parse tool calls themselves say, with an error status, when the model wrote a broken one.
_MALFORMED = ("tool_use_failed", "failed to call a function", "failed to parse tool", "error parsing tool call")


class OpenAIPolicy:
    """`omit` names body fields that an endpoint refuses, e.g. ("temperature", "seed") for some reasoning models.

    The address comes from `base_url` or OPENAI_BASE_URL, the key from the variable `api_key_env`, if set. Raises BadKey for a
    key that no header can carry.
    """

    takes_tokens = False

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key_env: str = "OPENAI_API_KEY",
        timeout_s: float = 300.0,
        max_retries: int = 5,
        max_tokens_field: str = "max_tokens",
        omit: tuple[str, ...] = (),
    ) -> None:
        self.name = model
        root = base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        self._url = f"{root.rstrip('/')}/chat/completions"
        self._key_env = api_key_env
        api_key(api_key_env)
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._max_tokens_field = max_tokens_field
        self._omit = omit
        self._client: httpx.AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._random = random.Random()

    async def complete(self, request: Request) -> Completion:
        start = time.perf_counter()
        try:
            body = await self._post(self._body(request), request.on_delta)
        except _MalformedCall as malformed:
            said = Message("assistant", malformed.said, problem="the server could not parse the tool call")
            return Completion(message=said, usage=Usage(seconds=time.perf_counter() - start))
        try:
            return from_wire(body, request.messages, time.perf_counter() - start)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise PolicyError(f"{self._url} answered no chat completion: {masked(str(body))[:200]}") from error

    async def release(self, session_id: str) -> None:
        """Endpoints keep nothing by session."""

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": [to_wire(message) for message in request.messages],
            "temperature": request.temperature,
            self._max_tokens_field: request.max_tokens,
        }
        if request.tools:
            body["tools"] = list(request.tools)
        if request.tools and request.extra.get("summary"):
            body["tool_choice"] = "none"  # the tools stay declared, so that the endpoint's prompt cache still fits
        if request.seed is not None:
            body["seed"] = request.seed
        if request.effort != "medium":  # the default everywhere; endpoints without the field refuse it
            body["reasoning_effort"] = request.effort
        return {key: value for key, value in body.items() if key not in self._omit}

    async def _post(self, body: dict[str, Any], told: Told | None) -> dict[str, Any]:
        import httpx

        trouble = ""
        for attempt in range(self._max_retries + 1):
            asked_s = 0.0
            try:
                reply = await ask(self._connection(), self._url, body, bearer(self._key_env), told)
            except httpx.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
            except STREAM_FAULTS as error:
                trouble = str(error)
                if any(mark in trouble.lower() for mark in _REQUEST_FAULTS):
                    raise PolicyError(trouble, infra=False) from error
            else:
                if reply.status == 200:
                    return self._completion(reply)
                trouble = f"HTTP {reply.status}: {masked(reply.text)[:300]}"
                if any(mark in reply.text.lower() for mark in _MALFORMED):
                    raise _MalformedCall(masked(reply.text)[:2000])
                if reply.status not in RETRIED_STATUS:
                    raise self._refused(reply.status, trouble)
                asked_s = _retry_after_s(reply.retry_after)
            if attempt < self._max_retries:
                wait_s = FIRST_WAIT_S * 2**attempt * self._random.uniform(0.5, 1.5)
                await asyncio.sleep(min(MAX_WAIT_S, max(wait_s, asked_s)))
        raise PolicyError(f"{self._url} failed {self._max_retries + 1} times, last with {trouble}")

    def _completion(self, reply: Reply) -> dict[str, Any]:
        if reply.body is None:
            raise PolicyError(f"{self._url} answered no JSON: {masked(reply.text)[:200]!r}")
        return reply.body

    def _connection(self) -> httpx.AsyncClient:
        """One client an event loop: its connections can't move to another."""
        import httpx

        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            self._client, self._loop = httpx.AsyncClient(timeout=self._timeout_s), loop
        return self._client

    def _refused(self, status: int, trouble: str) -> PolicyError:
        if status == 413 or (status in (400, 422) and any(mark in trouble.lower() for mark in _REQUEST_FAULTS)):
            return PolicyError(trouble, infra=False)
        remedy = {
            401: f"set {self._key_env}",
            403: f"the key in {self._key_env} may not use {self.name}",
            404: f"check the address {self._url} and the model name {self.name}",
        }.get(status, "does the endpoint refuse a field? leave it out: omit=(...), etude bench --omit FIELD")
        return PolicyError(f"{trouble} ({remedy})")


class _MalformedCall(Exception):
    """The model's doing, told by the server: evidence, hence a turn like any other malformed one."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


def _retry_after_s(value: str | None) -> float:
    """Seconds from a Retry-After header, in either of its forms (RFC 9110, section 10.2.3); 0 for what is neither."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else 0.0
