"""A served model with random weights and a ChatML tokenizer, and a thread that plays scripted answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

import httpx

from etude.agent.policy.protocol import Request
from etude.core.trace.completion import Completion, SampledTokens, Usage
from etude.learn.engine.core import EngineCore
from etude.learn.engine.service import EngineThread
from etude.learn.engine.settings import EngineSettings
from etude.learn.model.init import new_model
from etude.learn.model.settings import ModelSettings
from etude.learn.serve.served_model import ServedModel
from etude.learn.serve.serving import RunningServer, ServeOptions, running_server

WINDOW = 192
NAME = "tiny"


def served_model(renderer: Any, vocab_size: int | None = None) -> ServedModel:
    tokenizer = renderer._tokenizer
    ends = frozenset(renderer.stop_ids)
    return ServedModel(NAME, renderer, tokenizer, ends, vocab_size or tokenizer.size, WINDOW)


def engine_thread(model: ServedModel, sessions: int = 8) -> EngineThread:
    settings = ModelSettings.model_validate(
        {
            "family": "qwen3_moe", "hidden_size": 32, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 16,
            "moe_intermediate": 16, "experts": 4, "max_positions": 256, "init_head_std": 0.3,
        }
    )  # fmt: skip
    engine = EngineSettings(max_slots=sessions, max_batch=sessions, max_len=model.window)
    return EngineThread(EngineCore(new_model(settings, model.vocab_size), engine))


class ScriptedThread:
    """Answers with the ids that a function of the request gives, one token a step; never ends where it gives None."""

    alive = True

    def __init__(self, script: Callable[[Request], list[int] | None]) -> None:
        self._script = script
        self.requests: list[Request] = []
        self.aborted: list[int] = []
        self._open: dict[int, Callable[[Any], None]] = {}

    def submit(self, request: Request, deliver: Callable[[Any], None], on_tokens: Any = None) -> Future[int]:
        self.requests.append(request)
        ticket: Future[int] = Future()
        ticket.set_result(len(self.requests))
        ids = self._script(request)
        if ids is None:
            self._open[len(self.requests)] = deliver
            return ticket
        if on_tokens is not None:
            for token in ids[:-1]:
                on_tokens(SampledTokens([token], [-0.5], [0]))
        deliver(_completion(request, ids))
        return ticket

    def abort(self, ticket: int) -> None:
        self.aborted.append(ticket)
        if deliver := self._open.pop(ticket, None):
            deliver(_completion(self.requests[ticket - 1], [], "abort"))

    def release(self, sessions: list[str]) -> None:
        """Nothing is kept."""

    def call(self, function: Any) -> Future[Any]:
        raise AssertionError("no engine to read")


def _completion(request: Request, ids: list[int], finish: Any = "stop") -> Completion:
    usage = Usage(len(request.prompt_ids), 0, len(ids))
    return Completion(tokens=SampledTokens(ids, [-0.5] * len(ids), [0] * len(ids)), finish=finish, usage=usage)


@asynccontextmanager
async def served(
    model: ServedModel, thread: Any, **options: Any
) -> AsyncIterator[tuple[RunningServer, httpx.AsyncClient]]:
    """The server on a free port and a client of it."""
    async with running_server(model, thread, ServeOptions(port=0, **options)) as running:
        async with httpx.AsyncClient(base_url=running.address, timeout=60) as http:
            yield running, http
