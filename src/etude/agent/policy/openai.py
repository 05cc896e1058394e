"""Any OpenAI-compatible endpoint as a text policy. Overload and network trouble are retried with backoff; what remains is one of
two: a request that the model can't take (too long, filtered) is evidence, all else (keys, names, outages) is ours.

An endpoint that lists its model with `return_token_ids` (`wire/token_fields.py`) is asked for the tokens of each answer. They are what was
sampled, so such a session is a training sample like one of an engine in this process.

Endpoints differ in what they accept. Where a refusal says what to change (a smaller answer, another name for its limit, plainer ids), the
request is sent once more with that change, and later ones begin with it.
"""

from __future__ import annotations

import asyncio
import email.utils
import os
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from etude.agent.policy.connection import connect, words_of
from etude.agent.policy.model_list import ListedModel, ask_for_models, listed_models
from etude.agent.policy.openai_stream import STREAM_FAULTS, Reply, ask
from etude.agent.policy.protocol import ContextOverflow, PolicyError, Request, RetryWait
from etude.agent.policy.refusal import Refusal, error_words, read_refusal
from etude.agent.policy.wire.chat import from_wire
from etude.agent.policy.wire.errors import ProviderError, StreamCut, WireError
from etude.agent.policy.wire.opaque import THINKING_FIELDS, provider_of
from etude.agent.policy.wire.outgoing import Outgoing
from etude.agent.policy.wire.token_fields import ASK
from etude.core.redact.keys import api_key, bearer, mask_keys
from etude.core.trace.completion import Completion, Usage
from etude.core.trace.message import Message
from etude.core.trace.plain_json import plain
from etude.core.trace.unicode import whole
from etude.sandbox.egress.address import origin_of, redirect_target, split_address
from etude.sandbox.egress.environment_proxy import ConnectionSettingError

if TYPE_CHECKING:
    import httpx

RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
# Waits of 0.5, 1, 2, 4, 8 s (times 0.5-1.5): 15 s bridge a restart or a burst, longer outages are for the caller.
FIRST_WAIT_S = 0.5
# A server may ask for more than we are ready to wait within one turn.
MAX_WAIT_S = 60.0
_SHOWN_CHARS = 300
# Of one request, each made as a refusal asks for it: more is an endpoint that contradicts itself, or redirects in a circle.
_MOST_CHANGES = 8
_REFUSES_A_FIELD = (400, 422)
_KEEPS_METHOD = (307, 308)
_MISSING = ("missing", "must be", "required", "expected", "passed back", "must contain", "must include")
_UNWANTED = (
    "not supported",
    "unsupported",
    "unexpected",
    "extra",
    "not permitted",
    "not allowed",
    "forbidden",
    "remove",
    "unrecognized",
)


REQUIRED = frozenset({"messages"})  # what no request goes without; some endpoints refuse even `model`


class OpenAIPolicy:
    """`omit` names fields that an endpoint refuses, of the body or of its messages, e.g. ("temperature", "seed") for some reasoning
    models. `command`: the command line that the person ran, whose options a remedy names; "" for one without them, None for a program.

    The address comes from `base_url` or OPENAI_BASE_URL, the key from the variable `api_key_env`, if set. Raises BadKey for a
    key that no header can carry, AddressError, and ValueError where `omit` names a field of REQUIRED.
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
        window_tokens: int | None = None,
        command: str | None = None,
    ) -> None:
        self.name = model
        self.window_tokens = window_tokens  # of the model, prompt and answer together; refusals teach it
        root = (base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1").strip()
        split_address(root)
        if kept := REQUIRED.intersection(omit):
            raise ValueError(
                f"omit={sorted(kept)}: no request goes without {' and '.join(sorted(kept))}; omit other fields"
            )
        self._url = f"{root.rstrip('/')}/chat/completions"
        self._key_env = api_key_env
        api_key(api_key_env)
        self._timeout_s = timeout_s
        self._max_retries = max_retries
        self._max_tokens_field = max_tokens_field
        self._most_tokens: int | None = None  # of one answer, where the endpoint has named it
        self._omit = frozenset(omit)
        self._outgoing = Outgoing(provider_of(root, model), unwanted=self._omit)
        self._trusting = False  # this endpoint's streams end without a word
        self._returns_tokens = False
        self.served_chat = (
            ""  # the fingerprint of the chat format that the endpoint renders prompts with, if it returns tokens
        )
        self._command = command
        self._clients: dict[str, httpx.AsyncClient] = {}  # by origin: a proxy is that of a scheme
        self._loop: asyncio.AbstractEventLoop | None = None
        self._random = random.Random()

    async def complete(self, request: Request) -> Completion:
        start = time.perf_counter()
        try:
            body = await self._post(request)
        except _MalformedCall as malformed:
            said = Message("assistant", malformed.said, problem="the server could not parse the tool call")
            return Completion(message=said, usage=Usage(seconds=time.perf_counter() - start))
        try:
            return from_wire(body, request.messages, time.perf_counter() - start, self._outgoing.provider)
        except WireError as error:
            raise PolicyError(f"{self._url}: {error}") from error
        except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise PolicyError(
                f"{self._url} answered no chat completion: {mask_keys(str(plain(body)))[:200]}"
            ) from error

    async def read_list(self) -> None:
        """Take what the endpoint lists of the model. Without an answer nothing changes: a fault of the endpoint shows in the first turn,
        which has retries and words for it."""
        import httpx

        try:
            response = await ask_for_models(self._url.removesuffix("/chat/completions"), self._key_env)
        except (httpx.TransportError, httpx.InvalidURL, httpx.UnsupportedProtocol, ConnectionSettingError):
            return
        self.take_listed(listed_models(response).get(self.name, ListedModel()))

    def take_listed(self, listed: ListedModel) -> None:
        """Use the row of the endpoint's list that is this model's. A window that is known already stays."""
        self.window_tokens = self.window_tokens or listed.window_tokens
        self._returns_tokens = listed.returns_tokens and ASK not in self._omit
        self.served_chat = listed.chat if self._returns_tokens else ""

    async def release(self, session_id: str) -> None:
        """Endpoints keep nothing by session."""

    async def close(self) -> None:
        """Close the connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _body(self, request: Request, room: int | None, outgoing: Outgoing) -> dict[str, Any]:
        """The request's JSON; `room`: the answer that the endpoint has room for, `outgoing`: how the messages are written."""
        limits = (request.max_tokens, self._most_tokens, room)
        body: dict[str, Any] = {
            "model": self.name,
            "messages": outgoing.rows(request.messages),
            "temperature": request.temperature,
            self._max_tokens_field: min(limit for limit in limits if limit is not None),
        }
        if request.tools:
            body["tools"] = whole(plain(request.tools))  # a server's schema may hold anything
        if request.tools and request.extra.get("summary"):
            body["tool_choice"] = "none"  # the tools stay declared, so that the endpoint's prompt cache still fits
        if request.seed is not None:
            body["seed"] = request.seed
        if request.effort != "medium":  # the default everywhere; endpoints without the field refuse it
            body["reasoning_effort"] = request.effort
        if self._returns_tokens:
            body[ASK] = True
        if request.on_delta is not None and "stream" not in self._omit:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {key: value for key, value in body.items() if key not in self._omit}

    async def _post(self, request: Request) -> dict[str, Any]:
        """The body that answers, after as many repetitions as it takes. Raises PolicyError, _MalformedCall."""
        trouble = _Trouble("")
        for attempt in range(self._max_retries + 1):
            answer = await self._once(request)
            if isinstance(answer, dict):
                return answer
            trouble = answer
            if attempt < self._max_retries:
                wait_s = FIRST_WAIT_S * 2**attempt * self._random.uniform(0.5, 1.5)
                wait_s = min(MAX_WAIT_S, max(wait_s, trouble.asked_s))
                if request.on_wait is not None:
                    request.on_wait(RetryWait(mask_keys(trouble.reason), wait_s, attempt + 1, self._max_retries))
                await asyncio.sleep(wait_s)
        raise PolicyError(f"{self._url} failed {self._max_retries + 1} times, last with {trouble.reason}")

    async def _once(self, request: Request) -> dict[str, Any] | _Trouble:
        """One request, sent again only where the endpoint says what to change. What may pass is a trouble."""
        import httpx

        room, outgoing = None, self._outgoing
        for _ in range(_MOST_CHANGES):
            body, url = self._body(request, room, outgoing), self._url
            try:
                client, headers = self._connection(), bearer(self._key_env)
                reply = await ask(client, url, body, headers, request.on_delta, trusting=self._trusting)
            except ProviderError as error:
                reply = Reply(error.status, str(error))
            except (httpx.InvalidURL, httpx.UnsupportedProtocol, ConnectionSettingError) as error:
                raise PolicyError(f"{url} can't be asked: {error}") from error
            except httpx.TransportError as error:
                return _Trouble(f"{type(error).__name__}: {words_of(error, url)}")
            except StreamCut as error:
                self._trusting = error.whole
                return _Trouble(str(error))
            except STREAM_FAULTS as error:
                return _Trouble(str(error)[:_SHOWN_CHARS])
            if reply.status == 200:
                self._trusting = self._trusting and not reply.ended
                self._outgoing = outgoing  # what was tried and helped
                if reply.body is None and not reply.text.strip():
                    return _Trouble("the answer is empty")
                return self._completion(reply)
            refusal = read_refusal(reply.status, reply.text, asked_tokens=self._asked(body, request))
            if (trouble := self._passing(reply, refusal)) is not None:
                return trouble
            before = (room, outgoing, self._how(), url)
            room = refusal.answer_tokens if refusal.window_tokens is not None else room
            self._learn(reply, refusal)
            if refusal.kind == "other" and reply.status in _REFUSES_A_FIELD:
                outgoing = _rewritten(outgoing, reply.text, body["messages"], request)
            if before == (room, outgoing, self._how(), self._url):
                raise self._refused(reply, refusal)
        raise PolicyError(f"{self._url} refuses {_MOST_CHANGES} forms of one request, last with {_shown(reply.text)}")

    def _passing(self, reply: Reply, refusal: Refusal) -> _Trouble | None:
        """The trouble that may be over when the turn is asked for again. Raises _MalformedCall."""
        if refusal.kind == "call":
            raise _MalformedCall(mask_keys(reply.text)[:2000])
        if reply.status in RETRIED_STATUS and refusal.kind == "other":
            return _Trouble(f"HTTP {reply.status}: {_shown(reply.text)}", _retry_after_s(reply.retry_after))
        return None

    def _asked(self, body: dict[str, Any], request: Request) -> int:
        """The largest answer that a body allows; what the caller wants where the limit is omitted."""
        return int(body.get(self._max_tokens_field, request.max_tokens))

    def _how(self) -> tuple[Any, ...]:
        """The limits that refusals change."""
        return self._max_tokens_field, self._most_tokens

    def _learn(self, reply: Reply, refusal: Refusal) -> None:
        """Change what the refusal says must be changed, for this request and those after it."""
        if refusal.window_tokens is not None:
            known = self.window_tokens
            self.window_tokens = min(known, refusal.window_tokens) if known else refusal.window_tokens
        if refusal.kind == "output" and refusal.window_tokens is None:
            self._most_tokens = refusal.answer_tokens
        if refusal.kind == "field" and self._max_tokens_field == "max_tokens":
            self._max_tokens_field = "max_completion_tokens"
        if reply.status in _KEEPS_METHOD and (target := redirect_target(self._url, reply.location)):
            self._url = target

    def _completion(self, reply: Reply) -> dict[str, Any]:
        if reply.body is None:
            raise PolicyError(f"{self._url} answered no JSON: {mask_keys(reply.text)[:200]!r}")
        return reply.body

    def _connection(self) -> httpx.AsyncClient:
        """One client an event loop and origin: its connections can't move to another."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._clients, self._loop = {}, loop
        origin = origin_of(self._url)
        if origin not in self._clients:
            self._clients[origin] = connect(self._url, self._timeout_s)
        return self._clients[origin]

    def _refused(self, reply: Reply, refusal: Refusal) -> PolicyError:
        full = error_words(reply.text)
        words = f"HTTP {reply.status}: {_shown(reply.text)}"
        if refusal.kind in ("overflow", "output"):
            window, prompt = refusal.window_tokens, refusal.prompt_tokens
            return ContextOverflow(words, window_tokens=window, prompt_tokens=prompt, status=reply.status, refusal=full)
        infra = refusal.kind != "filtered"
        remedy = f" ({self._remedy(reply)})" if infra else ""
        return PolicyError(f"{words}{remedy}", infra=infra, status=reply.status, refusal=full)

    def _remedy(self, reply: Reply) -> str:
        if 300 <= reply.status < 400:
            target = _joined(self._url, reply.location).removesuffix("/chat/completions")
            return f"the address is redirected; give {mask_keys(target)} instead of {self._url.removesuffix('/chat/completions')}"
        known = {
            401: f"set {self._key_env}",
            403: f"the key in {self._key_env} may not use {self.name}",
            404: f"check the address {self._url} and the model name {self.name}",
        }
        omit = "omit=(...)" if self._command is None else f"{self._command} --omit FIELD"
        advice = "" if self._command == "" else f"; if it refuses a field, leave it out with {omit}"
        return known.get(reply.status, f"the endpoint refuses the request{advice}")


class _Trouble:
    """What may pass. `asked_s`: how long the endpoint wants to be left alone."""

    def __init__(self, reason: str, asked_s: float = 0.0) -> None:
        self.reason = reason
        self.asked_s = asked_s


class _MalformedCall(Exception):
    """The model's doing, found by the server: evidence, hence a turn like any other malformed one."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


def _rewritten(how: Outgoing, text: str, sent: list[dict[str, Any]], request: Request) -> Outgoing:
    """Another way to write a history that was refused for what other endpoints want in it: thinking sent back or not, ids as they
    came. The same one where nothing else is left to try."""
    low = text.lower()
    thinking = next((name for name in THINKING_FIELDS if name in low), None)
    refused = any(word in low for word in _UNWANTED)
    if thinking is not None and not refused and not how.missing and any(word in low for word in _MISSING):
        return replace(how, missing=thinking)
    fields = {key for message in request.messages for key in (*message.opaque, *message.thinking_fields)} - {"content"}
    named = {name for name in fields - how.unwanted if name in low and any(name in row for row in sent)}
    if named:
        return replace(how, unwanted=how.unwanted | named)
    strict = replace(how, strict_ids=True)
    return strict if strict.rows(request.messages) != sent else how


def _shown(text: str) -> str:
    """The words of an error as a line shows them."""
    return mask_keys(error_words(text))[:_SHOWN_CHARS]


def _joined(url: str, location: str) -> str:
    """Where a redirect leads; the location as it is where it is no address."""
    try:
        return urljoin(url, location)
    except ValueError:
        return location


def _retry_after_s(value: str | None) -> float:
    """Seconds from a Retry-After header, in either of its forms (RFC 9110, section 10.2.3); 0 for what is neither."""
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        date = email.utils.parsedate_tz(value)
        return max(0.0, email.utils.mktime_tz(date) - time.time()) if date else 0.0
